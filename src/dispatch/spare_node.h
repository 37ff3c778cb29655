/*
 * spare_node.h: a node of a hash table that is allocated before it is needed, so that an insertion cannot fail. The
 * table's load factor is 1.
 */
#pragma once

#include <cassert>
#include <utility>

namespace dispatch {

template <class Table> class SpareNode {
public:
  bool is_there(const Table &table) const noexcept {
    return !node_.empty() && table.size() + 1 < table.bucket_count();
  }
  /* Throws when out of memory. */
  void make(Table &table) {
    if (table.size() + 1 >= table.bucket_count())
      table.reserve(2 * (table.size() + 8));
    if (node_.empty()) {
      Table one;
      one.try_emplace(typename Table::key_type());
      node_ = one.extract(one.begin());
    }
  }
  /* The table does not have the key. */
  typename Table::iterator insert(Table &table, typename Table::key_type key,
                                  typename Table::mapped_type value) noexcept {
    assert(is_there(table));
    node_.key() = key;
    node_.mapped() = std::move(value);
    return table.insert(std::move(node_)).position;
  }

private:
  typename Table::node_type node_;
};

}  // namespace dispatch
