/* assets.h: the style sheet and the script, which the build puts into the program. */
#pragma once

namespace console::assets {

extern const char style[], refresh[];

}  // namespace console::assets
