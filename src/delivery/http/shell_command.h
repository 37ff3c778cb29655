/*
 * shell_command.h: a command line for bash, zsh or any POSIX shell, safe to be pasted whatever its texts are: nothing
 * in them is run, expanded, or read by the terminal as a key.
 */
#pragma once

#include <string>
#include <string_view>

namespace outbox {

class ShellCommand {
public:
  explicit ShellCommand(std::string_view program) : line_(program) {}

  /* An option, with its value when there is one: any bytes but NUL. */
  ShellCommand &option(std::string_view name);
  ShellCommand &option(std::string_view name, std::string_view value);
  /* A value that begins with `prefix`, printable ASCII, and ends with what the person has in a variable of the shell;
   * `meaning` says what belongs there, in letters and spaces. */
  ShellCommand &option_of_variable(std::string_view name, std::string_view prefix, std::string_view variable,
                                   std::string_view meaning);
  /* What the command reads from its standard input: any bytes. */
  void input(std::string_view bytes);

  std::string text() const { return input_ + line_; }

private:
  std::string input_, line_;
};

/* Can it stand in the line as it is? Printable UTF-8 on one line. */
bool is_printable(std::string_view text);

}  // namespace outbox
