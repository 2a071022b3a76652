# heddle_wing(LABEL)    this folder is a wing, or a part of one: of its tests, LABEL is what scripts/changed.py knows it by
macro(heddle_wing label)
  set_property(DIRECTORY PROPERTY LABELS ${label})
endmacro()

# heddle_wing_program(TARGET COMPONENT)    the program of a wing's commands: installed where `heddle` finds it, and built with it
function(heddle_wing_program target component)
  if(TARGET heddle_tool AND NOT HEDDLE_ALONE)
    add_dependencies(heddle_tool ${target})
  endif()
  if(HEDDLE_INSTALL)
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/..")
    install(TARGETS ${target} RUNTIME DESTINATION ${CMAKE_INSTALL_LIBDIR}/heddle COMPONENT ${component})
    add_dependencies(heddle_installables ${target})
  endif()
endfunction()
