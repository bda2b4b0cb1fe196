#include "tests/unit/messages/any_letter.hpp"

#include <capnp/dynamic.h>

namespace troupe::test {
namespace {

using capnp::DynamicList;
using capnp::DynamicStruct;
using capnp::DynamicValue;

void collect(const DynamicValue::Reader& value, const std::string& path, std::map<std::string, std::string>& fields) {
  switch (value.getType()) {
    case DynamicValue::STRUCT: {
      const auto object = value.as<DynamicStruct>();
      for (const auto field : object.getSchema().getNonUnionFields()) collect(object.get(field), path + "." + field.getProto().getName().cStr(), fields);
      KJ_IF_MAYBE (field, object.which()) collect(object.get(*field), path + "." + field->getProto().getName().cStr(), fields);
      return;
    }
    case DynamicValue::LIST: {
      const auto list = value.as<DynamicList>();
      for (unsigned i = 0; i < list.size(); ++i) collect(list[i], path + "[" + std::to_string(i) + "]", fields);
      return;
    }
    case DynamicValue::BOOL: fields[path] = value.as<bool>() ? "true" : "false"; return;
    case DynamicValue::INT: fields[path] = std::to_string(value.as<std::int64_t>()); return;
    case DynamicValue::UINT: fields[path] = std::to_string(value.as<std::uint64_t>()); return;
    case DynamicValue::FLOAT: fields[path] = std::to_string(value.as<double>()); return;
    case DynamicValue::TEXT: fields[path] = value.as<capnp::Text>().cStr(); return;
    case DynamicValue::ENUM: fields[path] = std::to_string(value.as<capnp::DynamicEnum>().getRaw()); return;
    default: return;
  }
}

/// From 1 on, small enough for every integer type and every table of indices.
std::uint64_t number_for(const std::string& name) {
  if (name == "actor" || name == "edge" || name == "communicator" || name == "lane" || name == "outcome") return 2;
  std::uint64_t sum = 0;
  for (const char c : name) sum = (sum * 31 + static_cast<unsigned char>(c)) % 199;
  return sum + 3;
}

void fill(DynamicStruct::Builder object);

void fill_list(DynamicList::Builder list, const std::string& name) {
  for (unsigned i = 0; i < list.size(); ++i) {
    if (list.getSchema().whichElementType() == capnp::schema::Type::STRUCT)
      fill(list[i].as<DynamicStruct>());
    else if (list.getSchema().whichElementType() == capnp::schema::Type::TEXT)
      list.set(i, capnp::Text::Reader((name + " " + std::to_string(i)).c_str()));
    else
      list.set(i, number_for(name) + i);
  }
}

void fill(DynamicStruct::Builder object) {
  for (const auto field : object.getSchema().getNonUnionFields()) {
    const std::string name = field.getProto().getName().cStr();
    if (field.getProto().isGroup()) continue;
    switch (field.getType().which()) {
      case capnp::schema::Type::STRUCT: fill(object.init(field).as<DynamicStruct>()); break;
      case capnp::schema::Type::LIST: fill_list(object.init(field, 2).as<DynamicList>(), name); break;
      case capnp::schema::Type::TEXT: object.set(field, ("the " + name).c_str()); break;
      case capnp::schema::Type::BOOL: object.set(field, true); break;
      case capnp::schema::Type::FLOAT64: object.set(field, static_cast<double>(number_for(name)) + 0.25); break;
      case capnp::schema::Type::ENUM: object.set(field, capnp::DynamicEnum(field.getType().asEnum(), 1)); break;
      default: object.set(field, number_for(name)); break;
    }
  }
}

}  // namespace

std::map<std::string, std::string> fields_of(schema::Envelope::Reader envelope) {
  std::map<std::string, std::string> fields;
  collect(DynamicValue::Reader(DynamicStruct::Reader(envelope)), "letter", fields);
  return fields;
}

kj::Array<capnp::word> filled_letter(LetterKind kind) {
  capnp::MallocMessageBuilder builder(std::uint32_t{4096});
  auto envelope = builder.initRoot<schema::Envelope>();
  fill(DynamicStruct::Builder(envelope));
  switch (kind) {
#define TROUPE_FILL(Type, UPPER) \
  case LetterKind::UPPER: fill(DynamicStruct::Builder(Body<schema::Type>::init(envelope))); break;
    TROUPE_LETTER_KINDS(TROUPE_FILL)
#undef TROUPE_FILL
    case LetterKind::RETIRED14: break;
  }
  return capnp::messageToFlatArray(builder);
}

const std::vector<LetterKind>& all_kinds() {
  static const std::vector<LetterKind> kinds = {
#define TROUPE_KIND(Type, UPPER) LetterKind::UPPER,
      TROUPE_LETTER_KINDS(TROUPE_KIND)
#undef TROUPE_KIND
  };
  return kinds;
}

}  // namespace troupe::test
