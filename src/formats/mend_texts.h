/*
 * mend_texts.h - texts of a profile whose source does not promise that they are UTF-8: what a C program recorded under any bytes,
 * or a spool that was tampered with.
 */
#ifndef SP_FORMATS_MEND_TEXTS_H
#define SP_FORMATS_MEND_TEXTS_H

#include "analysis/profile.h"

/* Bytes that belong to no character become U+FFFD; tags that are no JSON list of texts go. The profile is the caller's alone. */
sp_status sp_mend_texts(sp_profile *profile);

#endif
