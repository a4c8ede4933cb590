# Voltron. `make help` lists what there is.
#
#   MODE=release|debug|asan|ubsan|san|tsan|fuzz   CC=gcc|clang   ARCH=x86_64|aarch64   WERROR=1   V=1
#
# Objects live in build/<mode>-<arch>-<compiler>-<hash of the flags>/, so no two kinds of build ever
# share one; build/voltron-run and friends are links to the newest release build for this machine.

HOST_ARCH := $(shell uname -m)
ARCH      ?= $(HOST_ARCH)
MODE      ?= release
PREFIX    ?= /usr/local
BUILD     ?= build

ifneq ($(ARCH),$(HOST_ARCH))
CROSS     := $(ARCH)-linux-gnu-
ifeq ($(origin CC),default)
CC        := $(CROSS)gcc
endif
AR        := $(CROSS)ar
DEB_ARCH  := $(patsubst x86_64,amd64,$(patsubst aarch64,arm64,$(ARCH)))
RUN       ?= qemu-$(ARCH)-static -cpu $(or $(QEMU_CPU),max)
PKG_CONFIG := PKG_CONFIG_LIBDIR=/usr/lib/$(ARCH)-linux-gnu/pkgconfig:/usr/share/pkgconfig pkg-config
endif
PKG_CONFIG ?= pkg-config
ifeq ($(origin CC),default)
CC        := gcc
endif

# --- flags -------------------------------------------------------------------------------------

WARNINGS  := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes
CPPFLAGS  := -Iinclude -D_GNU_SOURCE
CFLAGS_release := -O3 -g -DNDEBUG
CFLAGS_debug   := -O0 -g3
CFLAGS_asan    := -O1 -g -fno-omit-frame-pointer -fsanitize=address
CFLAGS_ubsan   := -O1 -g -fno-omit-frame-pointer -fsanitize=undefined -fno-sanitize-recover=all
CFLAGS_san     := $(CFLAGS_asan) -fsanitize=undefined -fno-sanitize-recover=all
CFLAGS_tsan    := -O1 -g -fno-omit-frame-pointer -fsanitize=thread
CFLAGS_fuzz    := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined,fuzzer-no-link \
                  -fno-sanitize-recover=all
ifeq ($(CFLAGS_$(MODE)),)
$(error MODE=$(MODE) is not known; use release, debug, asan, ubsan, san, tsan or fuzz)
endif
ALL_CFLAGS := -std=c11 -pthread $(WARNINGS) $(if $(WERROR),-Werror) $(CFLAGS_$(MODE)) $(CFLAGS)
LDFLAGS_SAN := $(filter -fsanitize=%,$(CFLAGS_$(MODE)))

# pkg-config modules and the Debian packages that bring them.
MODULES   := openblas libzstd libuv libpcre2-8 libutf8proc libsodium jansson
TEST_MODULES := cmocka
DEPS_OK   := $(shell $(PKG_CONFIG) --exists $(MODULES) 2>/dev/null && echo yes)
ifeq ($(DEPS_OK),yes)
LIB_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(MODULES))
# Only what is used: a library that is merely named would still be loaded, and OpenBLAS starts threads.
LIBS       := -Wl,--as-needed $(shell $(PKG_CONFIG) --libs $(MODULES)) -lm
ifdef STATIC
# Debian's static libuv has a name of its own; gfortran is for parts of LAPACK that are not used.
STATIC_LIBS := $(shell $(PKG_CONFIG) --static --libs $(MODULES))
LIBS       := -static $(filter-out -lgfortran,$(patsubst -luv,-l:libuv_a.a,$(STATIC_LIBS))) -lm
endif
TEST_LIBS   = $(shell $(PKG_CONFIG) --libs $(TEST_MODULES))
endif

FLAG_HASH := $(shell echo '$(filter-out -Werror,$(ALL_CFLAGS)) $(LIB_CFLAGS) $(CPPFLAGS) $(LDFLAGS) $(STATIC)' | cksum | cut -d' ' -f1)
space     := $(subst ,, )
OUT       := $(BUILD)/$(MODE)-$(ARCH)-$(subst $(space),,$(notdir $(CC)))-$(FLAG_HASH)
Q         := $(if $(V),,@)
say        = $(if $(V),,@printf '  %-4s %s\n' $(1) $(2))

# --- sources -----------------------------------------------------------------------------------

KERNEL_SRC := $(wildcard kernels/*.c) \
              $(if $(filter x86_64,$(ARCH)),$(wildcard kernels/x86/*.c)) \
              $(if $(filter aarch64,$(ARCH)),$(wildcard kernels/neon/*.c kernels/neon/*.S))
LIB_SRC    := $(KERNEL_SRC) \
              $(wildcard planner/*.c net/*.c src/*.c src/*.S src/families/*.c src/tokenizer/*.c)
CLI_SRC    := $(wildcard src/cli/*.c src/cli/*.S)
BENCH_SRC  := $(wildcard bench/*.c)
TEST_SRC   := $(wildcard tests/test_*.c)
TEST_HELP  := $(filter-out $(TEST_SRC),$(wildcard tests/*.c))
CHECKKERN_SRC := $(wildcard tests/checkkern/*.c)
FUZZ_SRC   := $(wildcard tests/fuzz/fuzz_*.c)
EXAMPLE_SRC := $(wildcard docs/*.c)

obj        = $(patsubst %,$(OUT)/%.o,$(basename $(1)))
LIB_OBJ   := $(call obj,$(LIB_SRC))
LIB       := $(OUT)/libvoltron.a
CLI       := $(OUT)/voltron-run
BENCH     := $(OUT)/voltron-bench
TESTS     := $(patsubst tests/%.c,$(OUT)/tests/%,$(TEST_SRC))
FUZZERS   := $(patsubst tests/fuzz/%.c,$(OUT)/fuzz/%,$(FUZZ_SRC))
EXAMPLES  := $(patsubst docs/%.c,$(OUT)/docs/%,$(EXAMPLE_SRC))

# The simulator of ARM cores, run in place, and what it measures: kernels/ alone, static.
NEONSIM       := ../shared/neonsim
NEONSIM_BIN   := $(OUT)/neonsim/harness
NEONSIM_PLUGIN := $(abspath $(OUT)/neonsim/libroi.so)

# --- what to build -----------------------------------------------------------------------------

.PHONY: all help run test check-deps deps tests fuzzers neonsim install uninstall clean
.DEFAULT_GOAL := all

## all        build voltron-run, voltron-bench and libvoltron.a (default)
## lib        only libvoltron.a
lib: check-deps $(LIB)

all: check-deps $(LIB) $(CLI) $(BENCH)
	@for product in voltron-run voltron-bench libvoltron.a; do \
	  $(if $(or $(CROSS),$(filter-out release,$(MODE))),:,\
	    ln -sfn $(patsubst $(BUILD)/%,%,$(OUT))/$$product $(BUILD)/$$product); done

## run        install what is missing, build, tell a story on three local device processes
run: deps
	@+$(MAKE) --no-print-directory run-story

## test       install what is missing, build, run all tests (ONLY="gguf net_loop": build and run those)
test: deps
	@+$(MAKE) --no-print-directory run-tests

# Apart from run and test, so that make looks at the libraries after they were installed.
run-story: all
	$(Q)$(RUN) $(CLI) --local 3 -p "Once upon a time" -n 200

run-tests: all $(if $(ONLY),check-deps $(ONLY:%=$(OUT)/tests/test_%),tests)
	$(Q)VOLTRON_RUNNER='$(RUN)' VOLTRON_BIN=$(OUT) tests/run.sh $(OUT) $(ONLY)

## tests      build the test programs without running them
tests: check-deps $(TESTS) $(EXAMPLES) $(CLI) $(BENCH)

## fuzzers    build the fuzz targets (MODE=fuzz CC=clang); tests/fuzz/README.md says how to run them
fuzzers: check-deps $(FUZZERS)

## neonsim    simulate ARM cores on the NEON kernels → bench/results/neon-kernels.* (ONLY=part of a name)
neonsim:
ifneq ($(ARCH),aarch64)
	@+$(MAKE) --no-print-directory ARCH=aarch64 neonsim
else
	@bench/neonsim/check-tools $(NEONSIM)
	@+$(MAKE) --no-print-directory $(NEONSIM_BIN) $(NEONSIM_PLUGIN)
	@mkdir -p bench/results
	$(Q)python3 bench/neonsim/measure.py $(NEONSIM) $(NEONSIM_BIN) $(NEONSIM_PLUGIN) \
	    bench/results/neon-kernels $(if $(ONLY),'$(ONLY)')
endif

## install    copy program, library and header to $(DESTDIR)$(PREFIX) (/usr/local)
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib $(DESTDIR)$(PREFIX)/include
	install -m 755 $(CLI) $(BENCH) $(DESTDIR)$(PREFIX)/bin
	install -m 644 $(LIB) $(DESTDIR)$(PREFIX)/lib
	install -m 644 include/voltron.h $(DESTDIR)$(PREFIX)/include

## uninstall  remove what install copied
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,bin/voltron-run bin/voltron-bench \
	      lib/libvoltron.a include/voltron.h)

## deps       install missing build packages (Debian, Ubuntu; root or sudo), else say what is missing
deps:
	@.ci/install-deps $(if $(CROSS),$(DEB_ARCH))

check-deps:
ifneq ($(DEPS_OK),yes)
	@.ci/install-deps --check $(if $(CROSS),$(DEB_ARCH))
endif

## dist-aarch64  one self-contained static voltron-run for arm64 phones (Termux) and boards
dist-aarch64:
	@.ci/install-deps arm64
	@+$(MAKE) --no-print-directory ARCH=aarch64 STATIC=1 strip-to-dist

strip-to-dist: check-deps $(CLI)
	@mkdir -p $(BUILD)/dist
	$(Q)$(CROSS)strip -o $(BUILD)/dist/voltron-run-$(ARCH) $(CLI)
	@ls -l $(BUILD)/dist/voltron-run-$(ARCH)

## clean      remove build/
clean:
	rm -rf $(BUILD)

## help       this list
help:
	@echo 'make [TARGET] [MODE=release|debug|asan|ubsan|san|tsan|fuzz] [CC=gcc|clang] [ARCH=aarch64] [WERROR=1] [V=1]'
	@sed -n 's/^## /  /p' $(firstword $(MAKEFILE_LIST))

# --- rules -------------------------------------------------------------------------------------

# The planner and the scalar kernels (the oracle) compute the same bits everywhere.
EXACT := -ffp-contract=off
$(OUT)/planner/%.o: EXTRA := $(EXACT)
$(OUT)/kernels/%.o: EXTRA := $(EXACT)
# So are random weights, and what becomes of weights.
$(OUT)/bench/synth%.o: EXTRA := $(EXACT)
$(OUT)/src/quantize%.o $(OUT)/src/weight_convert.o: EXTRA := $(EXACT)
# Instruction sets are allowed in the files that are named after them, nowhere else.
AVX2   := -mavx2 -mfma -mf16c -mprefer-vector-width=256
AVX512 := $(AVX2) -mavx512f -mavx512bw -mavx512vl -mavx512dq
$(OUT)/kernels/x86/%_avx2.o:        EXTRA := $(AVX2)
$(OUT)/kernels/x86/%_avx512.o:      EXTRA := $(AVX512)
$(OUT)/kernels/x86/%_avx512vnni.o:  EXTRA := $(AVX512) -mavx512vnni
$(OUT)/kernels/neon/%_neon.o:       EXTRA :=
$(OUT)/kernels/neon/%_dotprod.o:    EXTRA := -march=armv8.2-a+dotprod
$(OUT)/kernels/neon/%_fp16.o:       EXTRA := -march=armv8.2-a+fp16
$(OUT)/kernels/neon/%_fhm.o:        EXTRA := -march=armv8.2-a+fp16+fp16fml
$(OUT)/kernels/neon/%_i8mm.o:       EXTRA := -march=armv8.2-a+dotprod+i8mm

# Fuzzing is about parsers; clang takes minutes to instrument unrolled kernels.
plain = $(if $(filter fuzz,$(MODE)),$(if $(filter kernels/%,$<),-fno-sanitize=all))

$(OUT)/%.o: %.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(LIB_CFLAGS) $(ALL_CFLAGS) $(EXTRA) $(plain) -MMD -MP -c $< -o $@

$(OUT)/%.o: %.S Makefile
	$(call say,AS,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) $(EXTRA) -MMD -MP -c $< -o $@

$(OUT)/src/cli/default_model.o: src/assets/stories-4m-f16.gguf
$(OUT)/src/devices_asset.o: src/assets/devices.json

$(LIB): $(LIB_OBJ)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

link = $(CC) $(ALL_CFLAGS) $(LDFLAGS_SAN) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIB)

$(CLI): $(call obj,$(CLI_SRC)) $(LIB)
	$(call say,LINK,$@)
	$(Q)$(link) $(LIBS)

$(BENCH): $(call obj,$(BENCH_SRC)) $(LIB)
	$(call say,LINK,$@)
	$(Q)$(link) $(LIBS)

$(OUT)/tests/test_checkkern: $(call obj,$(CHECKKERN_SRC))
$(OUT)/tests/test_edit: $(call obj,src/cli/edit.c src/cli/history.c)
$(OUT)/tests/test_%: $(OUT)/tests/test_%.o $(call obj,$(TEST_HELP)) $(LIB)
	$(call say,LINK,$@)
	$(Q)$(link) $(TEST_LIBS) $(LIBS)

$(NEONSIM_BIN): $(call obj,bench/neonsim/harness.c $(KERNEL_SRC))
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -static -no-pie -o $@ $^ -lm

# A plugin of qemu, hence for this machine.
$(NEONSIM_PLUGIN): $(NEONSIM)/roi.c
	@mkdir -p $(@D)
	$(Q)gcc -O2 -fPIC -shared -fvisibility=hidden -o $@ $<

$(OUT)/docs/%: $(OUT)/docs/%.o $(LIB)
	$(call say,LINK,$@)
	$(Q)$(link) $(LIBS)

$(OUT)/fuzz/%: $(OUT)/tests/fuzz/%.o $(LIB)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -fsanitize=address,undefined,fuzzer $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIB) $(LIBS)

.SECONDARY:
-include $(shell find $(OUT) -name '*.d' 2>/dev/null)
