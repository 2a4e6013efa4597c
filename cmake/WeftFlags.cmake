# Compiler flags, as interface targets that a target opts into. None of them reaches a user of the library.

set(weft_gnu $<CXX_COMPILER_ID:GNU>)
set(weft_cxx $<COMPILE_LANGUAGE:CXX>)

add_library(weft_warnings INTERFACE)
target_compile_options(weft_warnings INTERFACE
  $<${weft_cxx}:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
    -Wold-style-cast -Wcast-qual -Wextra-semi -Wimplicit-fallthrough -Wformat=2 -Wundef -Wvla
    -Wunused -Wsuggest-override>
  $<$<AND:${weft_cxx},${weft_gnu}>:-Wduplicated-cond -Wduplicated-branches -Wlogical-op
    # g++ 12 reports overlapping copies inside std::string that cannot happen (GCC bug 105651).
    -Wno-restrict
    # Vectors wider than the processor's registers go between functions of this library alone.
    -Wno-psabi>
  # A unity build includes sources, whose unnamed types g++ then takes for those of a header.
  $<$<AND:${weft_cxx},${weft_gnu},$<BOOL:${CMAKE_UNITY_BUILD}>>:-Wno-subobject-linkage>
  $<$<AND:${weft_cxx},$<NOT:${weft_gnu}>>:-Wconditional-uninitialized -Wrange-loop-analysis>)
if(WEFT_WERROR)
  target_compile_options(weft_warnings INTERFACE $<${weft_cxx}:-Werror>
    # These come from g++'s optimiser, which cannot follow Eigen's and std::vector's sizes: seen, not fatal.
    $<$<AND:${weft_cxx},${weft_gnu}>:-Wno-error=array-bounds -Wno-error=stringop-overflow
      -Wno-error=stringop-overread -Wno-error=maybe-uninitialized -Wno-error=free-nonheap-object>)
endif()

# What decides the bits and the speed of results. Not -ffast-math: NaN, infinity and the order of sums matter.
# Contraction is off because the compiler fuses as inlining happens to fall, so that one expression compiled
# in two places could give different bits; a kernel that wants a fused multiply-add writes one.
add_library(weft_numerics INTERFACE)
target_compile_options(weft_numerics INTERFACE
  $<${weft_cxx}:-fno-math-errno -fno-trapping-math -ffp-contract=off -fno-semantic-interposition
    -fvisibility-inlines-hidden>)
if(WEFT_ARCH)
  target_compile_options(weft_numerics INTERFACE $<${weft_cxx}:-march=${WEFT_ARCH}>)
endif()

set(CMAKE_CXX_FLAGS_DEBUG "-Og -g -D_GLIBCXX_ASSERTIONS")

add_library(weft_linking INTERFACE)
if(WEFT_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "WEFT_FUZZ=ON needs clang++ (libFuzzer), got ${CMAKE_CXX_COMPILER_ID}. "
      "With another compiler leave it off: the fuzzers are then built with their own driver.")
  endif()
  if(NOT WEFT_SANITIZE)
    set(WEFT_SANITIZE "address,undefined")
  endif()
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
endif()
if(WEFT_SANITIZE)
  set(weft_sanitize_flags -fsanitize=${WEFT_SANITIZE} -fno-sanitize-recover=all)
  foreach(flag IN LISTS weft_sanitize_flags ITEMS -fno-omit-frame-pointer)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:${flag}>)
  endforeach()
  add_link_options(${weft_sanitize_flags})
  # Instrumented code confuses g++'s flow analysis.
  target_compile_options(weft_warnings INTERFACE
    $<$<AND:${weft_cxx},${weft_gnu}>:-Wno-maybe-uninitialized -Wno-array-bounds -Wno-stringop-overflow>)
else()
  # Calls inside the library go straight to their function instead of through a table.
  target_link_options(weft_linking INTERFACE -Wl,-Bsymbolic-functions -Wl,-z,defs)
endif()
