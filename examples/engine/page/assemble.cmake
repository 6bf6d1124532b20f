# Puts the page together, one file that needs no other: where page.html says {{name}}, the file of
# that name stands.
#
#     cmake -D FOLDER=examples/engine/page -D OUT=page.html -P assemble.cmake
file(READ "${FOLDER}/page.html" page)
foreach(name page.css page_tree.js layout.js drawing.js detail.js picture.js charts.js answers.js
    chat.js main.js)
  file(READ "${FOLDER}/${name}" part)
  string(REPLACE "{{${name}}}" "${part}" page "${page}")
endforeach()
file(READ "${FOLDER}/../library.txt" part)
string(REPLACE "{{library.txt}}" "${part}" page "${page}")
file(WRITE "${OUT}" "${page}")
