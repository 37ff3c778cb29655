/* closest_match.h: finds the known name that a user probably meant. */
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace outbox {

/* Returns the name with the smallest edit distance from `given`, at most half of its length; empty if there is none.
 */
inline std::string_view closest_match(std::string_view given, const std::vector<std::string_view> &names) {
  std::string_view found;
  size_t best = std::max<size_t>(given.size() / 2, 1) + 1; /* with more changes it is another word */
  std::vector<size_t> row;
  for (std::string_view name : names) {
    row.resize(name.size() + 1);
    for (size_t j = 0; j < row.size(); j++)
      row[j] = j;
    for (size_t i = 1; i <= given.size(); i++) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j < row.size(); j++) {
        size_t change = diagonal + (given[i - 1] != name[j - 1]);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
      }
    }
    if (row.back() < best) {
      best = row.back();
      found = name;
    }
  }
  return found;
}

}  // namespace outbox
