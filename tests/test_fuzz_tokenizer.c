/* Runs the fuzz target over its corpus.
 *   test_fuzz_tokenizer FILE …                 runs these files instead (a crash the fuzzer found)
 *   test_fuzz_tokenizer --write-seeds FOLDER   writes small vocabularies with a text there */
#define FUZZ_NAME "tokenizer"
#include "fuzz/fuzz_tokenizer.c"
#include "fuzz/replay.h"
#include "vocabulary.h"

/* One odd seed: flags, text and the builder's file. */
static int write_seed(const char *folder, const char *name, unsigned flags, const char *text,
                      gguf_builder *builder)
{
    char path[4096];
    size_t bytes;
    unsigned char *file = gguf_builder_finish(builder, &bytes);
    unsigned char head[2] = {(unsigned char)(flags << 1 | 1), (unsigned char)strlen(text)};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *out = fopen(path, "wb");
    bool written = out && fwrite(head, 1, 2, out) == 2 &&
                   fwrite(text, 1, head[1], out) == head[1] &&
                   fwrite(file, 1, bytes, out) == bytes && fclose(out) == 0;
    if (!written) fprintf(stderr, "cannot write %s\n", path);
    free(file);
    return written ? 0 : 1;
}

static gguf_builder *named_vocabulary(const char *model, const char *pre)
{
    static test_vocabulary vocabulary;
    memset(&vocabulary, 0, sizeof vocabulary);
    vocabulary.model = model;
    vocabulary.pre = pre;
    static const char *const letters[] = {"a", "b", "c", "1", "\xC4\xA0", "\xC4\x8A", "'", "s"};
    for (int i = 0; i < 8; i++) test_vocabulary_add(&vocabulary, letters[i], 1);
    if (pre) {
        test_vocabulary_merge(&vocabulary, "a", "b");
        test_vocabulary_merge(&vocabulary, "ab", "c");
    } else {
        vocabulary.scores[test_vocabulary_add(&vocabulary, "ab", 1)] = -1;
        vocabulary.scores[test_vocabulary_add(&vocabulary, "\xE2\x96\x81" "a", 1)] = -2;
        test_vocabulary_add(&vocabulary, "<0x20>", 6);
    }
    test_vocabulary_add(&vocabulary, "<unk>", 2);
    test_vocabulary_add(&vocabulary, "<|eot_id|>", 3);
    test_vocabulary_add(&vocabulary, "<b>", 4);
    gguf_builder *builder = test_vocabulary_builder(&vocabulary);
    gguf_put_u32(builder, "tokenizer.ggml.bos_token_id", vocabulary.token_count - 2);
    gguf_put_u32(builder, "tokenizer.ggml.eos_token_id", vocabulary.token_count - 2);
    gguf_put_u32(builder, "tokenizer.ggml.unknown_token_id", vocabulary.token_count - 3);
    gguf_put_bool(builder, "tokenizer.ggml.add_bos_token", true);
    return builder;
}

static int write_seeds(const char *folder)
{
    static const char text[] = "ab abc 11's \n<b>\xC3\xA9<|eot_id|>c";
    int failures = write_seed(folder, "llama.gguf", 3, text, named_vocabulary("llama", NULL));
    failures += write_seed(folder, "qwen2.gguf", 2, text, named_vocabulary("gpt2", "qwen2"));
    failures += write_seed(folder, "llama3.gguf", 1, text, named_vocabulary("gpt2", "llama-bpe"));
    failures += write_seed(folder, "default.gguf", 0, text, named_vocabulary("gpt2", "default"));
    failures += write_seed(folder, "tekken.gguf", 3, text, named_vocabulary("gpt2", "tekken"));
    return failures;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(corpus_runs_through_the_target)};
    return fuzz_run_main(argc, argv, write_seeds, tests, sizeof tests / sizeof tests[0]);
}
