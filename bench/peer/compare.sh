#!/usr/bin/env bash
# Voltron beside llama.cpp's prebuilt library on the same files, with the same threads, in turns.
set -eu
version=3.22.1
here=$(cd "$(dirname "$0")" && pwd)
folder=${VOLTRON_PEER_FOLDER:-${XDG_CACHE_HOME:-$HOME/.cache}/voltron-peer}

if [ $# = 0 ] || [ "$1" = --help ] || [ "$1" = -h ]; then
  cat <<TEXT
compare.sh [OPTION …] MODEL.gguf …
  -p N, -n N            tokens of the prompt (256) and of the answer (64)
  -t N                  threads (2)
  -r N                  runs of each, in turns (5)
  --kv f16|q8           KV cache
  --csv FILE            append a line per model
  --quiet S             measure while no other program runs, and again if one did; wait S seconds
                        at most (Linux)
  --voltron PROGRAM     default build/voltron-bench
  --llama-bench PROGRAM measure this llama-bench instead of the prebuilt library
llama.cpp comes through npm (node-llama-cpp $version, nothing of it is run at installation) into
$folder (VOLTRON_PEER_FOLDER).
TEXT
  exit 0
fi

case " $* " in *" --llama-bench "*) ;; *)
  command -v npm >/dev/null ||
    { echo "compare.sh: npm and node (20 or newer) are needed" >&2; exit 1; }
  if ! [ -d "$folder/node_modules/node-llama-cpp" ]; then
    case $(uname -sm) in
      "Linux x86_64") platform=linux-x64 ;;
      "Linux aarch64") platform=linux-arm64 ;;
      "Darwin arm64") platform=mac-arm64-metal ;;
      *) echo "compare.sh: no prebuilt llama.cpp for $(uname -sm)" >&2; exit 1 ;;
    esac
    mkdir -p "$folder"
    npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --omit=optional \
      "node-llama-cpp@$version" "@node-llama-cpp/$platform@$version" >&2
  fi ;;
esac
exec node "$here/compare.mjs" --folder "$folder" --voltron "$here/../../build/voltron-bench" "$@"
