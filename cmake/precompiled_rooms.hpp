// What nearly every file of the library reads before its first own line, parsed once for all of them where HEDDLE_PRECOMPILE is ON. No header
// of the project belongs here: a change of one must rebuild what includes it, no more. Without a guard, which compilers
// warn of in what they precompile.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>
