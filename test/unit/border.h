/* border.h: calls of the functions in a kind's struct (delivery/kind.h), with lists of options, for tests. */
#pragma once

#include <vector>

#include "delivery/delivery.h"

namespace border {

using OptionList = std::vector<ob_option>;

/* Without a list of the mapping's options, these are not known. */
inline ob_sink_options given(const OptionList &server, const OptionList *mapping = nullptr) {
  return {.server = server.data(),
          .n_server = server.size(),
          .mapping = mapping ? mapping->data() : nullptr,
          .n_mapping = mapping ? mapping->size() : 0,
          .mapping_known = mapping != nullptr,
          .owner_is_superuser = false};
}

/* `options` are those of the scope. */
inline bool check_options(const char *kind, ob_scope scope, const OptionList &options, bool superuser,
                          ob_error *error) {
  const ob_sink_options both = given(options, &options);
  return ob_kind(kind)->check_options(kind, scope, &both, superuser, error);
}

inline bool check_owner(const char *kind, const OptionList &server, const OptionList &mapping, ob_error *error) {
  const ob_sink_options both = given(server, &mapping);
  return ob_kind(kind)->check_options(kind, OB_BOTH, &both, false, error);
}

inline bool common_options(const char *kind, const OptionList &options, ob_common *common, ob_error *error) {
  return ob_kind(kind)->common_options(kind, options.data(), options.size(), common, error);
}

inline ob_checker *checker_open(const char *kind, const OptionList &server, const OptionList *mapping,
                                ob_error *error) {
  const ob_sink_options options = given(server, mapping);
  return ob_kind(kind)->checker_open(kind, &options, error);
}

inline bool check(const ob_checker *checker, const ob_event &event, ob_error *error) {
  return checker->kind->checker_check(checker, &event, false, error);
}
inline bool check_new(const ob_checker *checker, const ob_event &event, ob_error *error) {
  return checker->kind->checker_check(checker, &event, true, error);
}

inline ob_sink *sink_open(ob_engines *engines, const char *name, const char *kind, const OptionList &server,
                          const OptionList &mapping, ob_error *error) {
  const ob_sink_options options = given(server, &mapping);
  return ob_sink_open(engines, name, kind, &options, error);
}

inline ob_probe *probe_start(ob_engines *engines, const char *name, const char *kind, const OptionList &server,
                             const OptionList &mapping, int timeout_ms, bool send, ob_error *error) {
  const ob_sink_options options = given(server, &mapping);
  return ob_probe_start(engines, name, kind, &options, timeout_ms, send, "", error);
}

inline ob_sink_status status_of(ob_sink *sink) {
  ob_sink_status status;
  sink->kind->sink_get_status(sink, &status);
  return status;
}

}  // namespace border
