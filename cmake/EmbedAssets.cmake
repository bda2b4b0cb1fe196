# cmake -DFOLDER=… -DASSETS=a,b -DOUTPUT=file.cpp -P EmbedAssets.cmake: writes the files' bytes as arrays, see tools/web/page.hpp.
string(REPLACE "," ";" assets "${ASSETS}")
set(arrays "")
set(table "")
set(number 0)
foreach(asset ${assets})
  file(READ "${FOLDER}/${asset}" bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  string(APPEND arrays "constexpr char asset_${number}[] = {${bytes}'\\0'};\n")
  string(APPEND table "      {\"${asset}\", {asset_${number}, sizeof(asset_${number}) - 1}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUTPUT}" "#include \"tools/web/page.hpp\"\n\nnamespace troupe {\nnamespace {\n\n${arrays}\n}  // namespace\n\n"
  "const std::map<std::string_view, std::string_view>& web_assets() {\n  static const std::map<std::string_view, std::string_view> table{\n${table}  };\n  return table;\n}\n\n}  // namespace troupe\n")
