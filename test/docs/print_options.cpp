/*
 * print_options.cpp: prints a table of options, a line for each and place: place, name, form, unit, default, values,
 * text, with tabs between. OPTIONS: the table's specs(); the header that declares it is included by the command line.
 */
#include <cstdio>

#include "delivery/options/options.h"

int main() {
  for (const outbox::OptionSpec &spec : OPTIONS)
    for (bool server : {true, false})
      if (server ? spec.in_server : spec.in_mapping)
        printf("%s\t%s\t%s\t%s\t%s\t%s\t%s%s\n", server ? "server" : "user mapping", spec.name.text,
               form_text(spec.form), spec.unit, spec.fallback.empty() ? "none" : spec.fallback.c_str(),
               spec.takes.c_str(), spec.superuser ? "Superuser only. " : "", spec.description);
}
