/*
 * origin.cpp: the origin is a hash of outbox.cluster_name, or of the system identifier where that is empty, and of
 * the database. It is computed once and again when the setting changes.
 */
#include "server/base/origin.h"

#include "server/base/settings.h"

extern "C" {
#include "access/xlog.h"
#include "common/hashfn.h"
}

int64 origin_here(void) {
  static char *hashed_name = NULL; /* the setting from which `origin` was computed */
  static int64 origin;

  if (hashed_name == NULL || strcmp(hashed_name, setting_cluster_name) != 0) {
    char text[1024];
    if (setting_cluster_name[0])
      snprintf(text, sizeof text, "%s/%u", setting_cluster_name, MyDatabaseId);
    else
      snprintf(text, sizeof text, UINT64_FORMAT "/%u", GetSystemIdentifier(), MyDatabaseId);
    char *copy = strdup(setting_cluster_name);
    if (hashed_name)
      free(hashed_name);
    hashed_name = copy;
    origin = (int64)hash_bytes_extended((const unsigned char *)text, (int)strlen(text), 0);
  }
  return origin;
}
