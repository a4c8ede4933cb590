/* Memory for weights: aligned, zero, separate, and no more of it than was asked for. */
#include "support.h"

#include <stdint.h>
#include <string.h>

#include "../src/arena.h"

enum { MEBI = 1 << 20, PIECES = 200 };

static void pieces_are_separate(void **state)
{
    (void)state;
    static unsigned char *piece[PIECES];
    vti_arena *arena = vti_arena_open();
    assert_non_null(arena);
    for (size_t i = 0; i < PIECES; i++) {
        piece[i] = vti_arena_allocate(arena, i * 1000);
        assert_non_null(piece[i]);
        assert_int_equal((uintptr_t)piece[i] % 64, 0);
        for (size_t j = 0; j < i * 1000; j++) assert_int_equal(piece[i][j], 0);
        memset(piece[i], (int)i + 1, i * 1000);
    }
    for (size_t i = 0; i < PIECES; i++)
        for (size_t j = 0; j < i * 1000; j += 97) assert_int_equal(piece[i][j], i + 1);
    vti_arena_close(arena);
}

/* What does not fit behind the others gets a place of its own; small pieces still fill the rest. */
static void large_pieces(void **state)
{
    (void)state;
    vti_arena *arena = vti_arena_open();
    unsigned char *small = vti_arena_allocate(arena, 100);
    unsigned char *large = vti_arena_allocate(arena, (size_t)300 * MEBI);
    unsigned char *next = vti_arena_allocate(arena, 100);
    assert_true(small && large && next);
    assert_int_equal(next - small, 128);
    large[0] = large[(size_t)300 * MEBI - 1] = 1;
    assert_int_equal(small[99] | next[99], 0);
    vti_arena_close(arena);
}

static void impossible_sizes(void **state)
{
    (void)state;
    vti_arena *arena = vti_arena_open();
    assert_null(vti_arena_allocate(arena, SIZE_MAX));
    assert_null(vti_arena_allocate(arena, SIZE_MAX - 63));
    assert_null(vti_arena_allocate(arena, SIZE_MAX / 2));
    assert_non_null(vti_arena_allocate(arena, 1)); /* it goes on */
    vti_arena_close(arena);
    vti_arena_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_separate), cmocka_unit_test(large_pieces),
        cmocka_unit_test(impossible_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
