# `cmake --install`, and eagain.pc twice: build/eagain.pc works from the checkout, the installed
# one from wherever it was installed to.

set(pc_prefix ${PROJECT_SOURCE_DIR})
set(pc_libdir ${PROJECT_BINARY_DIR})
set(pc_includedir ${PROJECT_SOURCE_DIR}/include)
set(pc_rpath " -Wl,-rpath,\${libdir}") # what is not installed, the loader does not find by itself
configure_file(eagain.pc.in ${PROJECT_BINARY_DIR}/eagain.pc @ONLY)

# Written at install time, since `cmake --install --prefix` may name another place than the
# configuration did.
set(pc_template ${PROJECT_BINARY_DIR}/installed.pc)
set(pc_prefix "\@CMAKE_INSTALL_PREFIX\@")
set(pc_rpath "")
foreach(dir LIBDIR INCLUDEDIR)
  string(TOLOWER ${dir} name)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
    set(pc_${name} "${CMAKE_INSTALL_${dir}}")
  else()
    set(pc_${name} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
configure_file(eagain.pc.in ${pc_template}.in @ONLY)
install(CODE "configure_file(\"${pc_template}.in\" \"${pc_template}\" @ONLY)")
install(FILES ${pc_template} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig RENAME eagain.pc)

install(TARGETS eagain_static eagain_shared
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
