/*
 * profile_image.h - a profile as bytes in a file in memory, to hand it from one process to another of the same program.
 *
 *   header      sizes, and where each column begins (page-aligned, so that it can be mapped)
 *   texts, rows, tables, ...     one after the other
 *   columns
 */
#ifndef SP_FORMATS_PROFILE_IMAGE_H
#define SP_FORMATS_PROFILE_IMAGE_H

#include "analysis/profile.h"

/* Write the outcome of making a profile: the profile, or what went wrong. */
sp_status sp_image_write(int fd, sp_status outcome, const sp_error *error, const sp_profile *profile);

/*
 * Read it back. Returns the outcome that was written, with its message, and on SP_OK the profile; SP_ERR_CORRUPT for bytes
 * that are no image. Large columns are mapped from `fd`, which may be closed afterwards.
 */
sp_status sp_image_read(int fd, sp_profile **profile, sp_error *error);

#endif
