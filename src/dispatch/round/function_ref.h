/* function_ref.h: a reference to a function object, which must outlive the call to which it is passed. */
#pragma once

#include <type_traits>

namespace dispatch {

template <class Result, class... Arguments> class FunctionRef {
public:
  template <class Function>
  requires(!std::is_same_v<std::remove_cvref_t<Function>, FunctionRef>)
      FunctionRef(Function &&function)  // NOLINT(google-explicit-constructor): a lambda is passed as it is
      : object_(const_cast<void *>(static_cast<const void *>(&function))),
        call_([](void *object, Arguments... arguments) -> Result {
          return (*static_cast<std::remove_reference_t<Function> *>(object))(arguments...);
        }) {}
  Result operator()(Arguments... arguments) const { return call_(object_, arguments...); }

private:
  void *object_;
  Result (*call_)(void *, Arguments...);
};

}  // namespace dispatch
