/* Merging with a heap against the plain way: look at all neighbours, join the best, again. */
#include "support.h"

#include "../src/tokenizer/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Any two symbols whose ids have a rank may be joined; the joined one is a new id. */
enum { IDS = 40 };

typedef struct rule_table {
    uint32_t rank[IDS][IDS]; /* UINT32_MAX: none */
    uint32_t id[IDS][IDS];
} rule_table;

/* Lengths keep the ids apart, as bytes of tokens do: joining 3 + 4 letters gives a 7-letter id. */
static void random_rules(test_random *random, rule_table *rules, uint32_t rank_count)
{
    for (uint32_t a = 0; a < IDS; a++) {
        for (uint32_t b = 0; b < IDS; b++) {
            uint64_t r = test_random_u64(random);
            uint32_t length = a / 4 + b / 4 + 2; /* of ids 4 * (length - 1) and the three behind */
            bool joins = 4 * length <= IDS && r % 3 > 0;
            rules->rank[a][b] = joins ? (uint32_t)(r >> 8) % rank_count : UINT32_MAX;
            rules->id[a][b] = joins ? 4 * (length - 1) + (uint32_t)(r >> 40) % 4 : 0;
        }
    }
}

static bool find_rule(const void *user, const char *text, const vti_symbol *left,
                      const vti_symbol *right, uint32_t *rank, uint32_t *id)
{
    (void)text;
    const rule_table *rules = user;
    *rank = rules->rank[left->id][right->id];
    *id = rules->id[left->id][right->id];
    return *rank != UINT32_MAX;
}

static size_t merge_plainly(const rule_table *rules, uint32_t *ids, size_t count)
{
    for (;;) {
        size_t best = count;
        uint32_t best_rank = UINT32_MAX;
        for (size_t i = 0; i + 1 < count; i++) {
            uint32_t rank = rules->rank[ids[i]][ids[i + 1]];
            if (rank < best_rank) {
                best_rank = rank;
                best = i;
            }
        }
        if (best == count) return count;
        ids[best] = rules->id[ids[best]][ids[best + 1]];
        memmove(ids + best + 1, ids + best + 2, (count - best - 2) * sizeof *ids);
        count--;
    }
}

static void test_against_the_plain_way(void **state)
{
    (void)state;
    test_random random = {.state = 21};
    static rule_table rules;
    vti_merge_scratch scratch = {0};
    vt_error err;
    size_t joined = 0;
    for (int round = 0; round < 4000; round++) {
        random_rules(&random, &rules, round % 2 ? 4 : 1000); /* few ranks: many ties */
        uint32_t ids[60];
        size_t count = 1 + test_random_u64(&random) % 60;
        assert_int_equal(vti_merge_reserve(&scratch, count, &err), VT_OK);
        for (size_t i = 0; i < count; i++) {
            ids[i] = (uint32_t)(test_random_u64(&random) % 4);
            scratch.symbols[i] = (vti_symbol){.start = (uint32_t)i, .bytes = 1, .id = ids[i]};
        }
        vti_merge(&scratch, "", count, find_rule, &rules);
        size_t expected = merge_plainly(&rules, ids, count), found = 0;
        uint32_t start = 0;
        for (uint32_t i = 0; i != VTI_NO_SYMBOL; i = scratch.symbols[i].next, found++) {
            if (found == expected || scratch.symbols[i].id != ids[found] ||
                scratch.symbols[i].start != start)
                fail_msg("round %d: symbol %zu", round, found);
            start += scratch.symbols[i].bytes;
        }
        assert_int_equal(found, expected);
        assert_int_equal(start, count);
        joined += count - found;
    }
    assert_true(joined > 20000);
    vti_merge_free(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_the_plain_way)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
