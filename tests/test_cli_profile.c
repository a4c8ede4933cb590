/* voltron-run profile: what it says, and that it measures once. */
#include <stdlib.h>
#include <string.h>

#include "cli_support.h"
#include "support.h"

#define TRIAL "RUN profile --trial -T 1 "

static void shows(void **state)
{
    (void)state;
    test_cli_expect(TRIAL, 0, "MOE   I4", NULL);
    test_cli_expect(TRIAL "--json", 0, "\"format\": \"voltron-profile\"", NULL);
    test_cli_expect(TRIAL "-o $DIR/p.json && grep -c per_mac $DIR/p.json", 0, "24", NULL);
    test_cli_expect("echo a letter >$DIR/letter; " TRIAL "-o $DIR/letter", 2, NULL,
                    "not a device profile");
    test_cli_expect("RUN profile --list", 0, "Pixel 5 (Snapdragon 765G)", NULL);
    test_cli_expect("RUN profile --class pixel-2-xl", 0, "4 threads, 19.4 GB/s", NULL);
    test_cli_expect("RUN profile --class toaster", 2, NULL, "there are galaxy-tab-s9");
    test_cli_expect("RUN profile --threads 0", 2, NULL, "threads");
    test_cli_expect("RUN profile --frob", 2, NULL, "--frob");
    test_cli_expect("RUN --help", 0, "voltron-run profile", NULL);
}

/* A file where the cache keeps it is taken as it is; one that is damaged or another's is not. */
static void is_kept(void **state)
{
    (void)state;
    test_cli_expect("mkdir -p $DIR/c; P=\"$(RUN profile --where -T 1 --cache $DIR/c)\"; " TRIAL
                    "-o \"$P\" && sed -i 's/\"accuracy\": 0.0/\"accuracy\": 0.125/' \"$P\" && "
                    "RUN profile -T 1 --cache $DIR/c --json && ls $DIR/c | wc -l",
                    0, "\"accuracy\": 0.125", "off by 88 % when it was checked");
    test_cli_expect("RUN profile --where -T 3", 0, "voltron/profile-", NULL);
    test_cli_expect("RUN profile --where --no-cache", 3, NULL, "no cache folder");
}

/* Runs with a file in the cache's place, until it has said something. */
#define PUT(WHAT) "mkdir -p $DIR/o; P=\"$(RUN profile --where -T 1 --cache $DIR/o)\"; " WHAT \
                  "; RUN profile -T 1 --cache $DIR/o 2>$DIR/said & I=0; " \
                  "until [ -s $DIR/said ] || [ $((I += 1)) -gt 400 ]; do sleep 0.05; done; " \
                  "kill $!; wait $!; cat $DIR/said >&2; rm $DIR/said"

static void what_does_not_belong_is_said(void **state)
{
    (void)state;
    test_cli_expect(PUT("RUN profile --class pixel-5 -o \"$P\""), 0, NULL,
                    "not used: the profile is worked out for");
    test_cli_expect(PUT("rm \"$P\"; RUN profile --trial -T 2 -o \"$P\""), 0, NULL,
                    "of 2 threads, wanted is one of 1");
    test_cli_expect(PUT(TRIAL "-o \"$P\"; sed -i 's/\"voltron\": \"[^\"]*/\"voltron\": \"0.0.9/' "
                        "\"$P\""), 0, NULL, "the profile is of Voltron 0.0.9, this is");
    test_cli_expect(PUT("echo a letter >\"$P\""), 0, NULL, "is no JSON");
    test_cli_expect("RUN profile --help >$DIR/help && cat -s $DIR/help | cmp - $DIR/help", 0, "",
                    NULL);
}

/* Ctrl-C while measuring: nothing is left. */
static void is_interrupted(void **state)
{
    (void)state;
    test_cli_expect("timeout -s INT 0.3 RUN profile --force -T 1 --cache $DIR/i; CODE=$?; "
                    "ls $DIR/i 2>/dev/null | wc -l; exit $CODE", 124, "0", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shows),
        cmocka_unit_test(is_kept),
        cmocka_unit_test(what_does_not_belong_is_said),
        cmocka_unit_test(is_interrupted),
    };
    return cmocka_run_group_tests(tests, test_cli_set_up, test_cli_tear_down);
}
