#include "dist/plan.h"

#include "core/error.h"

namespace weft::dist {

const Plan& plan_named(std::string_view name) {
  std::string names;
  for (const Plan& plan : kPlans) {
    if (plan.name == name) return plan;
    names += (names.empty() ? "" : ", ") + std::string(plan.name);
  }
  throw_error("strategy", {"expected one of ", names, ", got \"", name, "\""});
}

}  // namespace weft::dist
