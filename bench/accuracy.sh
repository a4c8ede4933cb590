#!/usr/bin/env bash
# Perplexity of a model in every weight type, as a table (bench/results/accuracy.md).
#   bench/accuracy.sh MODEL.gguf TEXT [TYPE ...]
# "exact activations": the same weights written out in F32, which meet float activations.
set -eu
model=$1 text=$2; shift 2
[ $# -gt 0 ] || set -- f32 bf16 q8_0 q6_k q5_k q5_0 q4_k q4_0
bin=$(cd "$(dirname "$0")/../build" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

ppl() { "$bin/voltron-run" ppl -m "$1" --text "$text" --context 256 --json |
        sed 's/.*"perplexity": \([0-9.]*\).*/\1/'; }
bits() { "$bin/voltron-run" inspect "$1" | sed -n 's/.*, \([0-9.]*\) bits each/\1/p'; }

reference=$(ppl "$model")
echo "| type | bits per weight | perplexity | against the file | with exact activations |"
echo "|---|---:|---:|---:|---:|"
echo "| as it is | $(bits "$model") | $reference | | |"
for type; do
  "$bin/voltron-bench" requantize -m "$model" --type "$type" -o "$folder/typed.gguf" >/dev/null
  "$bin/voltron-bench" requantize -m "$folder/typed.gguf" --type f32 -o "$folder/f32.gguf" >/dev/null
  value=$(ppl "$folder/typed.gguf")
  share=$(awk "BEGIN { printf \"%+.3f %%\", 100 * ($value / $reference - 1) }")
  echo "| ${type^^} | $(bits "$folder/typed.gguf") | $value | $share | $(ppl "$folder/f32.gguf") |"
done
