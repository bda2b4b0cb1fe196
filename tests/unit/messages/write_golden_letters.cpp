// Writes golden envelopes for kinds that have none yet: write_golden_letters FOLDER. Files that exist are never touched: they stand for
// what earlier versions sent. Run it once after adding a kind, and commit KIND.bin (the envelope) and KIND.txt (its fields).
#include <filesystem>
#include <fstream>
#include <iostream>

#include "tests/unit/messages/any_letter.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: write_golden_letters FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  for (const auto kind : troupe::test::all_kinds()) {
    const std::string name = troupe::name_of(kind);
    if (std::filesystem::exists(folder / (name + ".bin"))) continue;
    const auto words = troupe::test::filled_letter(kind);
    const auto bytes = words.asBytes();
    std::ofstream(folder / (name + ".bin"), std::ios::binary).write(reinterpret_cast<const char*>(bytes.begin()), static_cast<std::streamsize>(bytes.size()));
    std::ofstream text(folder / (name + ".txt"));
    capnp::FlatArrayMessageReader reader(words);
    for (const auto& [path, value] : troupe::test::fields_of(reader.getRoot<troupe::schema::Envelope>())) text << path << " = " << value << "\n";
    std::cout << "wrote " << name << "\n";
  }
  return 0;
}
