#pragma once
#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace troupe::test {

/// A safetensors file: length of the header, header, data.
class SafetensorsWriter {
 public:
  void add(const std::string& name, const char* dtype, const std::vector<std::int64_t>& shape, const void* data, std::size_t bytes) {
    header_ += (header_.empty() ? "{\"" : ",\"") + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[";
    for (std::size_t i = 0; i < shape.size(); ++i) header_ += (i ? "," : "") + std::to_string(shape[i]);
    header_ += "],\"data_offsets\":[" + std::to_string(data_.size()) + "," + std::to_string(data_.size() + bytes) + "]}";
    data_.append(static_cast<const char*>(data), bytes);
  }
  void write(const std::string& file) {
    header_ += "}";
    header_.resize((header_.size() + 7) / 8 * 8, ' ');
    const std::uint64_t length = header_.size();
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << header_ << data_;
    if (!out.flush()) throw std::runtime_error("cannot write " + file);
  }

 private:
  std::string header_, data_;
};

}  // namespace troupe::test
