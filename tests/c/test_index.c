/* An index finds each thing of an array, however many there are, and stays as it was where there is no memory for a larger one. */
#include "support.h"

#include "core/index.h"

#define THINGS 10000

typedef struct things {
    uint64_t keys[THINGS];
    uint64_t spread; /* hashes are keys modulo this: few of them make things share their slots */
} things;

static uint64_t hash_of(const void *owner, uint32_t number)
{
    const things *t = owner;
    return t->keys[number] % t->spread;
}

static bool is_thing(const void *owner, uint32_t number, const void *key)
{
    return ((const things *)owner)->keys[number] == *(const uint64_t *)key;
}

static uint32_t *slot_of(const sp_index *index, const things *t, uint64_t key)
{
    return sp_index_find(index, key % t->spread, t, is_thing, &key);
}

static void add(sp_index *index, things *t, uint32_t number, uint64_t key)
{
    assert_true(sp_index_reserve(index, number, t, hash_of));
    uint32_t *slot = slot_of(index, t, key);
    assert_int_equal(*slot, 0);
    t->keys[number] = key;
    *slot = number + 1;
}

static void each_is_found(uint64_t spread, uint32_t count)
{
    static things t;
    sp_index index = {0};
    t.spread = spread;
    for (uint32_t i = 0; i < count; i++) add(&index, &t, i, (uint64_t)i * i + 7);
    assert_true(index.size >= 2 * count && (index.size & (index.size - 1)) == 0);
    for (uint32_t i = 0; i < count; i++) assert_int_equal(*slot_of(&index, &t, t.keys[i]), i + 1);
    assert_int_equal(*slot_of(&index, &t, 8 * THINGS * (uint64_t)THINGS), 0);
    free(index.slots);
}

static void every_thing_is_found(void **state)
{
    (void)state;
    each_is_found(UINT64_MAX, THINGS);
}

static void things_of_one_hash_are_told_apart(void **state)
{
    (void)state;
    each_is_found(1, 300);
}

static void without_memory_all_is_as_before(void **state)
{
    (void)state;
    static things t = {.spread = UINT64_MAX};
    sp_index index = {0};
    for (uint32_t i = 0; i < 8; i++) add(&index, &t, i, 100 + i);
    const sp_index before = index;
    memory_fail(0, true);
    assert_false(sp_index_reserve(&index, 8, &t, hash_of));
    memory_fail(-1, false);
    assert_ptr_equal(index.slots, before.slots);
    assert_int_equal(index.size, before.size);
    for (uint32_t i = 0; i < 8; i++) assert_int_equal(*slot_of(&index, &t, t.keys[i]), i + 1);
    assert_false(sp_index_resize(&index, UINT32_MAX, 8, &t, hash_of));
    free(index.slots);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_thing_is_found),
        cmocka_unit_test(things_of_one_hash_are_told_apart),
        cmocka_unit_test(without_memory_all_is_as_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
