/* bad_input.h: what a call says that must refuse its arguments. */
#pragma once

#include "delivery/options/options.h"

namespace outbox {

/* The error of the call; its kind is OB_OK, and its texts are empty, if the arguments are accepted. */
template <class Call> BadInput bad_input_of(Call call) {
  try {
    (void)call();
  } catch (const BadInput &bad) {
    return bad;
  }
  return {OB_OK, "", ""};
}

}  // namespace outbox
