#include "formats/mend_texts.h"

#include <stdlib.h>
#include <string.h>

#include "formats/json_text.h"
#include "formats/utf8.h"

static bool mend(char **text)
{
    if (*text == NULL || sp_utf8_valid(*text, strlen(*text))) return true;
    char *repaired = sp_utf8_repaired(*text);
    if (repaired == NULL) return false;
    free(*text);
    *text = repaired;
    return true;
}

static bool mend_row(sp_row *row)
{
    uint64_t count;
    if (row->tags && !(sp_utf8_valid(row->tags, strlen(row->tags)) && sp_json_list(row->tags, '"', &count))) {
        free(row->tags);
        row->tags = NULL;
    }
    return mend(&row->source_file) && mend(&row->source_text);
}

sp_status sp_mend_texts(sp_profile *profile)
{
    bool fine = true;
    for (size_t i = 0; i < profile->name_count; i++) fine = mend(&profile->names[i]) && fine;
    for (size_t i = 0; i < profile->row_count; i++) fine = mend_row(&profile->rows[i]) && fine;
    for (size_t i = 0; i < profile->thread_count; i++) fine = mend(&profile->threads[i].name) && fine;
    for (size_t i = 0; i < profile->task_count; i++) {
        sp_task_info *task = &profile->tasks[i];
        fine = mend(&task->kind) && mend(&task->name) && mend(&task->coro_name) && fine;
    }
    for (size_t i = 0; i < profile->metadata_count; i++) fine = mend(&profile->metadata[i].text) && fine;
    return fine ? SP_OK : SP_ERR_NO_MEMORY;
}
