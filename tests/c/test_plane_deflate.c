/* Streams of plane_deflate.c, taken apart by libdeflate: every shape of plane comes back, in the room that was promised. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "formats/plane_deflate.h"

static uint64_t random_state = 99;

static uint64_t random_number(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

#define SHAPES 10

static void fill_plane(uint8_t *plane, size_t size, int shape)
{
    const size_t period = 1 + random_number() % 300;
    for (size_t i = 0; i < size; i++) {
        switch (shape) {
        case 0: plane[i] = 0; break;
        case 1: plane[i] = 0xff; break;
        case 2: plane[i] = (uint8_t)random_number(); break;
        case 3: plane[i] = (uint8_t)(random_number() % 3); break;
        case 4: plane[i] = (uint8_t)(i * 4); break;                          /* ids */
        case 5: plane[i] = (uint8_t)(i / 64); break;                         /* the next byte of ids */
        case 6: plane[i] = i < period ? (uint8_t)random_number() : plane[i - period]; break;
        case 7: plane[i] = i == size / 2; break;                             /* one different byte */
        case 8: { /* frequencies like Fibonacci's numbers: the code of unlimited length would be too long */
            uint64_t r = random_number();
            plane[i] = (uint8_t)__builtin_clzll(r | 1);
            break;
        }
        default: plane[i] = random_number() % 50 ? plane[i ? i - 1 : 0] : (uint8_t)random_number();
        }
    }
}

static void check(const uint8_t *data, size_t plane, size_t planes, size_t *used)
{
    uint8_t *out = malloc(sp_plane_deflate_bound(plane, planes)), *back = malloc(plane * planes);
    void *memory = malloc(sp_plane_deflate_memory(plane));
    struct libdeflate_decompressor *inflate = libdeflate_alloc_decompressor();
    const size_t size = sp_plane_deflate(data, plane, planes, out, memory);
    assert_true(size <= sp_plane_deflate_bound(plane, planes));
    assert_int_equal(libdeflate_zlib_decompress(inflate, out, size, back, plane * planes, NULL), LIBDEFLATE_SUCCESS);
    assert_memory_equal(back, data, plane * planes);
    if (used) *used = size;
    libdeflate_free_decompressor(inflate);
    free(out);
    free(back);
    free(memory);
}

static void all_shapes_and_sizes_come_back(void **state)
{
    static const size_t sizes[] = {32, 33, 63, 64, 65, 257, 258, 259, 260, 261, 517, 1000, 4096, 65535, 65536, 70001};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        uint8_t *data = malloc(sizes[s] * 8);
        for (int round = 0; round < 20; round++) {
            for (int p = 0; p < 8; p++) fill_plane(data + (size_t)p * sizes[s], sizes[s], (int)(random_number() % SHAPES));
            check(data, sizes[s], 8, NULL);
        }
        for (int shape = 0; shape < SHAPES; shape++) {
            fill_plane(data, sizes[s], shape);
            check(data, sizes[s], 1, NULL);
        }
        free(data);
    }
}

static void runs_and_periods_take_next_to_nothing(void **state)
{
    const size_t plane = 65536;
    uint8_t *data = malloc(plane * 8);
    size_t used;
    memset(data, 7, plane * 8);
    check(data, plane, 8, &used);
    assert_true(used < 700); /* 2032 matches of 258 bytes, 2 bits each */
    for (size_t i = 0; i < plane; i++) data[i] = (uint8_t)(i * 4);
    check(data, plane, 8, &used);
    assert_true(used < 1200);
    free(data);
}

static void noise_is_stored_and_skewed_noise_coded(void **state)
{
    const size_t plane = 65536;
    uint8_t *data = malloc(plane);
    size_t used;
    fill_plane(data, plane, 2);
    check(data, plane, 1, &used);
    assert_true(used < plane + 50);
    for (size_t i = 0; i < plane; i++) data[i] = (uint8_t)(random_number() % 16); /* 4 bits each */
    check(data, plane, 1, &used);
    assert_true(used < plane / 2 + 1000); /* the end of the block takes a place in the code too */
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_shapes_and_sizes_come_back),
        cmocka_unit_test(runs_and_periods_take_next_to_nothing),
        cmocka_unit_test(noise_is_stored_and_skewed_noise_coded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
