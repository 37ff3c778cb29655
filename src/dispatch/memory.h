/*
 * memory.h: the memory of the decisions. An allocation that fails calls out_of_memory(), which does not return: the
 * worker ends with an error, and the next one goes on as after a kill. So no function here fails for want of memory,
 * and none has a state to restore.
 */
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <new>
#include <unordered_map>
#include <vector>

namespace dispatch {

/* Calls what was given, else abort(). */
[[noreturn]] void out_of_memory() noexcept;
/* `end` does not return. It ends the process, and runs no destructor of these objects. */
void when_out_of_memory(void (*end)()) noexcept;

template <class T> T *checked(T *allocated) noexcept {
  if (allocated == nullptr)
    out_of_memory();
  return allocated;
}

template <class T> struct Allocator {
  using value_type = T;
  Allocator() = default;
  template <class U> Allocator(const Allocator<U> &) noexcept {}  // NOLINT(google-explicit-constructor): as std's
  T *allocate(size_t n) noexcept { return static_cast<T *>(checked(::operator new(n * sizeof(T), std::nothrow))); }
  void deallocate(T *from, size_t) noexcept { ::operator delete(from); }
  bool operator==(const Allocator &) const = default;
};

template <class T> using Vector = std::vector<T, Allocator<T>>;
template <class T> using List = std::list<T, Allocator<T>>;
template <class Key, class Value, class Hash = std::hash<Key>>
using HashMap = std::unordered_map<Key, Value, Hash, std::equal_to<Key>, Allocator<std::pair<const Key, Value>>>;

template <class T> std::unique_ptr<T[]> make_array(size_t n) noexcept {
  return std::unique_ptr<T[]>(checked(new (std::nothrow) T[n]()));
}

}  // namespace dispatch
