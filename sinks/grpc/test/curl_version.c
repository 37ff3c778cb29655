/* Preloaded: libcurl says that it is the version $CURL_VERSION_NUM. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <curl/curl.h>

curl_version_info_data *curl_version_info(CURLversion now) {
  static curl_version_info_data data;
  static char text[32];
  const char *number = getenv("CURL_VERSION_NUM");
  curl_version_info_data *(*real)(CURLversion) = dlsym(RTLD_NEXT, "curl_version_info");

  data = *real(now);
  if (number) {
    data.version_num = (unsigned)atol(number);
    snprintf(text, sizeof text, "%u.%u.%u", data.version_num >> 16, data.version_num >> 8 & 255, data.version_num & 255);
    data.version = text;
  }
  return &data;
}
