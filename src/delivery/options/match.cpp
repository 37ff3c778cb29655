/*
 * match.cpp: parses the option into pairs; the server's route_index.cpp uses them to find an event's sinks.
 */
#include "delivery/options/match.h"

#include <algorithm>

#include "delivery/base/text.h"
#include "delivery/options/options.h"

namespace outbox {

namespace {

constexpr std::string_view blanks = " \t\r\n";

class MatchReader {
public:
  MatchReader(const std::string &option, const std::string &text) : option_(option), text_(text), rest_(text) {}

  std::vector<MatchPair> read() {
    std::vector<MatchPair> pairs;
    if (trim(rest_).empty())
      refuse("It is empty.", "Leave the option out, or take it away with OPTIONS (DROP " + option_ +
                                 "): then headers do not matter.");
    do {
      MatchPair pair = read_pair();
      if (std::any_of(pairs.begin(), pairs.end(), [&](const MatchPair &known) { return known.name == pair.name; }))
        refuse("Header \"" + pair.name + "\" is named twice, and all pairs must hold.",
               "Name each header once; make a sink for each of several values.");
      pairs.push_back(std::move(pair));
    } while (take(','));
    return pairs;
  }

private:
  MatchPair read_pair() {
    skip_blanks();
    if (rest_.empty() || rest_.front() == ',')
      refuse("One of its pairs is empty.", example);
    bool quoted = false;
    MatchPair pair;
    pair.name = read_word(quoted);
    if (pair.name.empty())
      refuse("A header has no name.", example);
    if (!take('='))
      refuse("Header \"" + pair.name + "\" is given no value.", example);
    pair.value = read_word(quoted);
    if (pair.value.empty() && !quoted)
      refuse("Header \"" + pair.name + "\" is given no value.",
             "Write " + pair.name + "=\"\" for a header whose value is the empty text.");
    skip_blanks();
    if (!rest_.empty() && rest_.front() == '=') {
      std::string whole = pair.value + std::string(trim(rest_.substr(0, rest_.find(','))));
      refuse("There is more than one \"=\" in a pair.",
             "Put a value with such a character into double quotes: " + pair.name + "=\"" + whole + "\".");
    }
    for (const std::string *word : {&pair.name, &pair.value})
      if (word->find_first_of("\r\n") != word->npos)
        refuse("It has a line break, and no header has one.", example);
    return pair;
  }

  /* Reads up to the next separator, or a quoted word. */
  std::string read_word(bool &quoted) {
    skip_blanks();
    quoted = !rest_.empty() && rest_.front() == '"';
    if (quoted)
      return read_quoted();
    size_t end = std::min(rest_.find_first_of(",="), rest_.size());
    std::string_view word = trim(rest_.substr(0, end));
    rest_.remove_prefix(end);
    if (word.find('"') != word.npos)
      refuse("There is a double quote within a word.",
             "Quote the whole name or value, and write a double quote within it twice: \"a \"\"b\"\"\".");
    if (word.find(';') != word.npos)
      refuse("Pairs are separated by commas, not by semicolons.",
             "A name or value with a semicolon stands in double quotes.");
    if (word.find('*') != word.npos)
      refuse("Headers are compared as they are: there are no patterns here.",
             "Name the value itself; one with an asterisk stands in double quotes.");
    return std::string(word);
  }

  std::string read_quoted() {
    std::string word;
    for (rest_.remove_prefix(1);;) {
      size_t quote = rest_.find('"');
      if (quote == rest_.npos)
        refuse("A double quote is not closed.", "Write a double quote within quotes twice: \"a \"\"b\"\"\".");
      word += rest_.substr(0, quote);
      rest_.remove_prefix(quote + 1);
      if (rest_.empty() || rest_.front() != '"')
        break;
      word += '"';
      rest_.remove_prefix(1);
    }
    skip_blanks();
    if (!rest_.empty() && rest_.front() != ',' && rest_.front() != '=')
      refuse("There is text behind a closing double quote.",
             "Quote the whole name or value, and write a double quote within it twice: \"a \"\"b\"\"\".");
    return word;
  }

  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(blanks), rest_.size())); }

  bool take(char separator) {
    skip_blanks();
    if (rest_.empty() || rest_.front() != separator)
      return false;
    rest_.remove_prefix(1);
    return true;
  }

  [[noreturn]] void refuse(const std::string &detail, const std::string &hint) const {
    throw BadInput(OB_BAD_VALUE, option_, "invalid value for option \"" + option_ + "\": \"" + text_ + "\"", detail,
                   hint);
  }

  static constexpr const char *example = "Write header=value pairs, separated by commas: 'tenant=42, region=eu'.";

  const std::string &option_, &text_;
  std::string_view rest_;
};

}  // namespace

std::vector<MatchPair> parse_match(const std::string &option, const std::string &text) {
  return MatchReader(option, text).read();
}

}  // namespace outbox
