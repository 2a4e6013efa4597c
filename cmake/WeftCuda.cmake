# The CUDA backend: nvcc, cuBLASLt and cuDNN are required once it is asked for, NCCL is used where found.

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90)
endif()
if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()
enable_language(CUDA)
# nvcc knows C++20 from 12.0 on; CMake 3.25 does not know that it does.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
if(WEFT_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${WEFT_CCACHE})
endif()

find_package(CUDAToolkit REQUIRED)
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUDNN_HOME PATH_SUFFIXES include)
find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR} ENV CUDNN_HOME PATH_SUFFIXES lib lib64)
if(NOT CUDNN_INCLUDE_DIR OR NOT CUDNN_LIBRARY)
  message(FATAL_ERROR "WEFT_CUDA=ON: expected cuDNN (cudnn.h and libcudnn), got "
    "'${CUDNN_INCLUDE_DIR}' and '${CUDNN_LIBRARY}'. Set CUDNN_HOME to where it is installed.")
endif()
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV NCCL_HOME PATH_SUFFIXES include)
find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ENV NCCL_HOME PATH_SUFFIXES lib lib64)

add_library(weft_cuda_libraries INTERFACE)
target_include_directories(weft_cuda_libraries SYSTEM INTERFACE ${CUDNN_INCLUDE_DIR})
target_link_libraries(weft_cuda_libraries INTERFACE CUDA::cudart CUDA::cublasLt ${CUDNN_LIBRARY})
target_compile_options(weft_cuda_libraries INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr --extended-lambda
    --Werror=cross-execution-space-call>)
if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
  target_include_directories(weft_cuda_libraries SYSTEM INTERFACE ${NCCL_INCLUDE_DIR})
  target_link_libraries(weft_cuda_libraries INTERFACE ${NCCL_LIBRARY})
  target_compile_definitions(weft_cuda_libraries INTERFACE WEFT_WITH_NCCL=1)
else()
  message(STATUS "NCCL was not found: no nccl communicator in this build")
endif()
