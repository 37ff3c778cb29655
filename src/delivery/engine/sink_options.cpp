/*
 * sink_options.cpp: checks that concern several options, or both server and user mapping, when CREATE or ALTER
 * SERVER runs, so that a worker never gets contradicting options.
 */
#include "delivery/engine/sink_options.h"

#include <algorithm>
#include <span>

#include "delivery/options/common_options.h"

namespace outbox {

const SinkKind &sink_kind(std::string_view name) {
  const SinkKind *kind = SinkKind::find(name);
  if (!kind)
    SinkKind::throw_if_unavailable(name);
  if (!kind)
    throw BadInput(OB_BAD_VALUE, {}, "unknown kind of sink \"" + std::string(name) + "\"",
                   "The loaded library has: " + SinkKind::names() + ".",
                   "After make install of a library that has it, restart the server.");
  return *kind;
}

Options to_options(const ob_option *options, size_t n) {
  Options map;
  for (const ob_option &option : std::span(options, n))
    map[option.name] = option.value ? option.value : "";
  return map;
}

void throw_secret_in_server(const std::string &name) {
  throw BadInput(OB_WRONG_PLACE, name, "option \"" + name + "\" is a secret and cannot be an option of the server",
                 "Every role can read the options of a server.",
                 "Use CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (" + name + " '...').");
}

void throw_not_for_mapping(const std::string &name) {
  throw BadInput(OB_WRONG_PLACE, name, "option \"" + name + "\" belongs to the server, not to its user mapping",
                 "A user mapping holds names and secrets only.",
                 "Use ALTER SERVER ... OPTIONS (" + name + " '...').");
}

void throw_superuser_only(const std::string &name, const std::string &detail) {
  throw BadInput(OB_FORBIDDEN, name, "only a superuser may set option \"" + name + "\"", detail);
}

/* A name may have a row for each place. */
static const OptionSpec *find_spec(const std::vector<OptionSpec> &specs, const std::string &name, ob_scope scope) {
  const OptionSpec *found = nullptr;
  for (const OptionSpec &spec : specs)
    if (name == spec.name.text && (!found || (scope == OB_SERVER ? spec.in_server : spec.in_mapping)))
      found = &spec;
  return found;
}

void check_options(const SinkKind &kind, ob_scope scope, const Options &options, bool superuser) {
  for (const auto &[name, value] : options) {
    const OptionSpec *spec = find_spec(CommonOptions::table().specs(), name, scope);
    if (!spec)
      spec = find_spec(kind.options(), name, scope);
    if (!spec) {
      if (!kind.check_other(scope, name, value, superuser))
        throw BadInput(OB_UNKNOWN_OPTION, name, "invalid option \"" + name + "\"");
      continue;
    }
    if (scope == OB_SERVER && !spec->in_server)
      throw_secret_in_server(name);
    if (scope == OB_USER_MAPPING && !spec->in_mapping)
      throw_not_for_mapping(name);
    if (spec->superuser && !superuser)
      throw_superuser_only(name, {});
  }
  if (scope == OB_SERVER)
    CommonOptions::of(options).check_together();
}

void check_mapping(const SinkKind &kind, const Options &mapping, bool superuser) {
  check_options(kind, OB_USER_MAPPING, mapping, superuser);
  kind.check_mapping(mapping);
}

/* Among the options that both may have, only `url` in the mapping replaces the server's value; others add to it. */
void check_owner(const SinkKind &kind, const Options &server, const Options &mapping) {
  const auto &specs = kind.options();
  auto granted = std::find_if(specs.begin(), specs.end(), [&](const OptionSpec &spec) {
    return spec.superuser && find_option(server, spec.name);
  });
  if (granted == specs.end() || !find_option(mapping, URL))
    return;
  throw BadInput(OB_FORBIDDEN, URL,
                 std::string("option \"url\" in the user mapping cannot go together with \"") + granted->name.text +
                     "\"",
                 "The server's owner is no superuser and could change it at will.",
                 "A superuser gives it to the server: ALTER SERVER ... OPTIONS (ADD url '...'), or owns the server: "
                 "ALTER SERVER ... OWNER TO ....");
}

std::shared_ptr<const SinkConfig> parse_options(const SinkKind &kind, const Options &server, const Options *mapping,
                                                Owner owner) {
  check_options(kind, OB_SERVER, server, true);
  if (mapping)
    check_options(kind, OB_USER_MAPPING, *mapping, true);
  return kind.parse(server, mapping, owner);
}

}  // namespace outbox
