/*
 * hdf5_input.h - datasets and attributes of a file that may be damaged.
 *
 * Nothing is allocated because a file says so: a dataset's length is believed only as far as the bytes that are stored for
 * it can hold it. Every failure is one sentence that names the file and the object. Datasets are read chunk by chunk through
 * chunk_codec.h; only filters that it does not know go through libhdf5.
 */
#ifndef SP_FORMATS_HDF5_INPUT_H
#define SP_FORMATS_HDF5_INPUT_H

#include <hdf5.h>

#include "analysis/profile.h"
#include "formats/chunk_codec.h"

typedef struct sp_input {
    const char *path;   /* of the file, for messages */
    uint64_t file_size;
    uint64_t *spent;    /* bytes of the file that the objects read so far stand for; see sp_input_spend */
    sp_coder *coder;
    sp_error *error;
} sp_input;

/* SP_ERR_CORRUPT with "path: object: what". */
sp_status sp_input_damaged(const sp_input *input, const char *object, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Note that `bytes` of the file are read for an object. Links can make a few of them look like any number of objects: a file
 * whose objects add up to several times its size is damaged. So what is read is bounded by the file, and so is the time.
 */
#define SP_INPUT_LINK 64 /* what a group takes at least */
sp_status sp_input_spend(const sp_input *input, const char *object, uint64_t bytes);

/* Open a hard-linked group or dataset; *object is H5I_INVALID_HID when there is none. `full_name` is for messages. */
sp_status sp_input_open_group(const sp_input *input, hid_t parent, const char *name, const char *full_name, hid_t *group);
sp_status sp_input_open_dataset(const sp_input *input, hid_t parent, const char *name, const char *full_name,
                                hid_t *dataset);

/* A one-dimensional dataset whose claims have been checked. */
typedef struct sp_dataset {
    hid_t id, type;
    const char *name;  /* full */
    uint64_t count;
    size_t element;    /* bytes, as stored */
    uint64_t chunk;    /* elements; 0: not chunked */
    bool direct;       /* chunks can be decoded here */
    sp_pipeline pipeline;
} sp_dataset;

/* Open and check; dataset->id is H5I_INVALID_HID when there is none. To be closed in any case. */
sp_status sp_dataset_open(const sp_input *input, hid_t group, const char *name, const char *full_name,
                          sp_dataset *dataset);
void sp_dataset_close(sp_dataset *dataset);

/* Elements [first, first + count) as int64. SP_ERR_CORRUPT if they are not integers. */
sp_status sp_dataset_read_int64(const sp_input *input, const sp_dataset *dataset, uint64_t first, uint64_t count,
                                int64_t *out);

/* All elements converted to `type` (a compound or a number), malloc'ed. */
sp_status sp_dataset_read_as(const sp_input *input, const sp_dataset *dataset, hid_t type, void **out);

/* All elements as malloc'ed valid UTF-8 texts. */
sp_status sp_dataset_read_texts(const sp_input *input, const sp_dataset *dataset, char ***out);

/*
 * A dataset or attribute of up to 4 dimensions as an sp_array, named `name`. *known is false for types that an sp_array cannot
 * hold (then nothing was made).
 */
sp_status sp_input_read_array(const sp_input *input, hid_t object, bool attribute, const char *name,
                              const char *full_name, sp_array *array, bool *known);

/* The attribute's kind of value and the value, as metadata; *known as above. */
sp_status sp_input_read_metadata(const sp_input *input, hid_t attribute, const char *name, const char *full_name,
                                 sp_profile *profile);

#endif
