/* Blocks: any content and any sizes come back; nothing else is accepted. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/shard_block.h"

/* A layout of pieces of these sizes; types alternate between halves, bytes and BF16. */
static vti_shard_layout layout_of(const uint64_t *sizes, unsigned count)
{
    static const vti_weight_type types[] = {VTI_F16, VTI_Q8_0, VTI_BF16};
    vti_shard_layout layout = {.bytes = 0};
    for (unsigned i = 0; i < count; i++) {
        layout.at[i] = (vti_placed_piece){.type = types[i % 3], .offset = layout.bytes,
                                          .bytes = sizes[i]};
        layout.bytes += sizes[i];
    }
    return layout;
}

typedef enum content { ZEROS, NOISE, HALVES, TEXT, CONTENTS } content;

static void fill(unsigned char *bytes, uint64_t count, content kind, test_random *random)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t value = test_random_u64(random);
        bytes[i] = kind == ZEROS                   ? 0
                   : kind == NOISE || i % 2 == 0 ? (unsigned char)value
                   : kind == HALVES               ? (unsigned char)(0x30 + value % 9)
                                                  : (unsigned char)"weights "[i / 3 % 8];
    }
}

/* Gives a block in order, and notices if it is asked for more. */
typedef struct feed {
    const unsigned char *block;
    uint64_t at, bytes;
    uint64_t fail_at; /* the read that reaches beyond it fails */
} feed;

static vt_status read_feed(void *context, void *to, size_t bytes, vt_error *err)
{
    feed *f = context;
    assert_true(bytes <= f->bytes - f->at);
    if (f->at + bytes > f->fail_at) return vti_fail(err, VT_ERR_IO, "the medium is gone");
    memcpy(to, f->block + f->at, bytes);
    f->at += bytes;
    return VT_OK;
}

typedef struct codec {
    vti_block_encoder *encoder;
    vti_block_decoder *decoder;
    unsigned char *memory, *back, *block;
    uint64_t block_bytes;
} codec;

static void open_codec(codec *c, const vti_shard_layout *layout)
{
    c->encoder = vti_block_encoder_open();
    c->decoder = vti_block_decoder_open();
    c->memory = malloc(layout->bytes);
    c->back = malloc(layout->bytes);
    c->block = malloc(vti_block_bound(layout));
}

static void close_codec(codec *c)
{
    vti_block_encoder_close(c->encoder);
    vti_block_decoder_close(c->decoder);
    free(c->memory);
    free(c->back);
    free(c->block);
}

static void encode(codec *c, const vti_shard_layout *layout, content kind, test_random *random)
{
    fill(c->memory, layout->bytes, kind, random);
    assert_int_equal(vti_block_encode(c->encoder, layout, c->memory, c->block, &c->block_bytes,
                                      NULL), VT_OK);
    assert_true(c->block_bytes <= vti_block_bound(layout));
}

static void check_round_trip(codec *c, const vti_shard_layout *layout)
{
    vt_error err = {.message = ""};
    feed f = {c->block, 0, c->block_bytes, UINT64_MAX};
    memset(c->back, 0x5a, layout->bytes);
    if (vti_block_decode(c->decoder, layout, read_feed, &f, c->block_bytes, c->back, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(f.at, c->block_bytes);
    assert_memory_equal(c->back, c->memory, layout->bytes);
    memset(c->back, 0x5a, layout->bytes);
    assert_int_equal(vti_block_decode_memory(c->decoder, layout, c->block, c->block_bytes, c->back,
                                             NULL), VT_OK);
    assert_memory_equal(c->back, c->memory, layout->bytes);
}

static void all_contents_and_sizes_come_back(void **state)
{
    (void)state;
    static const uint64_t sizes[][4] = {
        {64, 64, 64, 64},
        {VTI_FRAME_BYTES - 64, VTI_FRAME_BYTES - 64, 0, 0},
        {VTI_FRAME_BYTES, VTI_FRAME_BYTES, 128, 0},
        {VTI_FRAME_BYTES + 64, VTI_FRAME_BYTES + 64, 64, 1024},
        {2 * VTI_FRAME_BYTES, 2 * VTI_FRAME_BYTES + 64, 2 * VTI_FRAME_BYTES + 64, 0},
        {0, 700032, 0, 900032},
    };
    test_random random = {5};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        vti_shard_layout layout = layout_of(sizes[i], 4);
        codec c;
        open_codec(&c, &layout);
        for (int kind = 0; kind < CONTENTS; kind++) {
            encode(&c, &layout, (content)kind, &random);
            check_round_trip(&c, &layout);
            if (kind == ZEROS && layout.bytes > 4096) assert_true(c.block_bytes < layout.bytes / 20);
            if (kind == NOISE) assert_true(c.block_bytes < layout.bytes + layout.bytes / 1000 + 256);
        }
        close_codec(&c);
    }
}

/* Halves whose high bytes have few values become smaller because planes are apart. */
static void planes_of_halves_are_apart(void **state)
{
    (void)state;
    test_random random = {6};
    vti_shard_layout halves = layout_of((uint64_t[]){400000}, 1), bytes = halves;
    bytes.at[0].type = VTI_Q8_0;
    codec c;
    open_codec(&c, &halves);
    encode(&c, &halves, HALVES, &random);
    assert_true(c.block_bytes < halves.bytes * 72 / 100); /* 8 + log2(9) bits of 16 are 70 % */
    random.state = 6;
    encode(&c, &bytes, HALVES, &random);
    assert_true(c.block_bytes > bytes.bytes * 75 / 100);
    check_round_trip(&c, &bytes);
    close_codec(&c);
}

static void anything_else_is_refused(void **state)
{
    (void)state;
    test_random random = {8};
    vti_shard_layout layout = layout_of((uint64_t[]){2 * VTI_FRAME_BYTES + 640, 1280, 64}, 3);
    codec c;
    vt_error err;
    open_codec(&c, &layout);
    encode(&c, &layout, HALVES, &random);
    for (uint64_t left = 0; left < c.block_bytes; left += 1 + test_random_u64(&random) % 2000)
        assert_int_equal(vti_block_decode_memory(c.decoder, &layout, c.block, left, c.back, &err),
                         VT_ERR_FORMAT);
    c.block[c.block_bytes] = 0;
    assert_int_equal(vti_block_decode_memory(c.decoder, &layout, c.block, c.block_bytes + 1, c.back,
                                             &err), VT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "1 bytes too many"));
    vti_shard_layout other = layout_of((uint64_t[]){2 * VTI_FRAME_BYTES + 640, 1344, 0}, 3);
    assert_int_equal(vti_block_decode_memory(c.decoder, &other, c.block, c.block_bytes, c.back,
                                             &err), VT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "no frame of 1344 bytes"));
    c.block[4] ^= 0x10; /* a bit that decoders ignore */
    assert_int_equal(vti_block_decode_memory(c.decoder, &layout, c.block, c.block_bytes, c.back,
                                             &err), VT_ERR_FORMAT);
    c.block[4] ^= 0x10;
    check_round_trip(&c, &layout);
    close_codec(&c);
}

static void a_reader_that_fails_ends_it(void **state)
{
    (void)state;
    test_random random = {9};
    vti_shard_layout layout = layout_of((uint64_t[]){5 * VTI_FRAME_BYTES, 5 * VTI_FRAME_BYTES}, 2);
    codec c;
    vt_error err;
    open_codec(&c, &layout);
    encode(&c, &layout, NOISE, &random);
    feed f = {c.block, 0, c.block_bytes, c.block_bytes / 2};
    assert_int_equal(vti_block_decode(c.decoder, &layout, read_feed, &f, c.block_bytes, c.back,
                                      &err), VT_ERR_IO);
    assert_string_equal(err.message, "the medium is gone");
    check_round_trip(&c, &layout);
    close_codec(&c);
}

/* Python: hashlib.blake2b(bytes(range(200)), digest_size=32, person=b"voltron shard 1"). */
static void hashes_are_blake2b(void **state)
{
    (void)state;
    uint8_t hash[VTI_SHARD_HASH_BYTES];
    unsigned char data[200];
    char text[65];
    for (int i = 0; i < 200; i++) data[i] = (unsigned char)i;
    vti_shard_hash(data, sizeof data, hash);
    for (int i = 0; i < 32; i++) snprintf(text + 2 * i, 3, "%02x", hash[i]);
    assert_string_equal(text, "237b59b792ec29e1e929012504f070256caef2fabce38a293b6037b9a5b5e110");
    vti_stored_hash(data, sizeof data, hash);
    for (int i = 0; i < 32; i++) snprintf(text + 2 * i, 3, "%02x", hash[i]);
    assert_string_equal(text, "40ac31510d845807bb6fe6f9ef5dd16db55b97d78e730110caea568e1f968c4c");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_contents_and_sizes_come_back),
        cmocka_unit_test(planes_of_halves_are_apart),
        cmocka_unit_test(anything_else_is_refused),
        cmocka_unit_test(a_reader_that_fails_ends_it),
        cmocka_unit_test(hashes_are_blake2b),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
