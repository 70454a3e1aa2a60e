#include "tests/unit/validate/message_mutator.h"

#include <iterator>
#include <limits>

namespace kvtriage {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

uint64_t MessageMutator::BoundaryInteger() {
  constexpr uint64_t kEdges[] = {0,
                                 1,
                                 2,
                                 3,
                                 63,
                                 64,
                                 255,
                                 256,
                                 257,
                                 576,
                                 577,
                                 4095,
                                 4096,
                                 8192,
                                 (1u << 24) - 1,
                                 1u << 24,
                                 (1u << 24) + 1,
                                 0x7FFFFFFF,
                                 0x80000000,
                                 0xFFFFFFFE,
                                 0xFFFFFFFF,
                                 uint64_t{1} << 32,
                                 (uint64_t{1} << 63) - 1,
                                 uint64_t{1} << 63,
                                 ~uint64_t{0} - 1023,
                                 ~uint64_t{0}};
  if (Below(4) == 0) return random_() >> Below(64);
  return kEdges[Below(std::size(kEdges))];
}

double MessageMutator::BoundaryDouble() {
  using Limits = std::numeric_limits<double>;
  const double edges[] = {0.0,
                          -0.0,
                          0.5,
                          1.0,
                          1.0000001,
                          -1.0,
                          5e-324,
                          1e300,
                          Limits::max(),
                          Limits::infinity(),
                          -Limits::infinity(),
                          Limits::quiet_NaN()};
  return edges[Below(std::size(edges))];
}

void MessageMutator::SetNumber(Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      reflection.SetUInt32(&message, &field, static_cast<uint32_t>(BoundaryInteger()));
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      reflection.SetUInt64(&message, &field, BoundaryInteger());
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      reflection.SetDouble(&message, &field, BoundaryDouble());
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      reflection.SetBool(&message, &field, Below(2) == 0);
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      reflection.SetEnumValue(&message, &field, static_cast<int>(Below(10)) - 1);
      break;
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string bytes = reflection.GetString(message, &field);
      MutateBytes(bytes);
      // `string` fields must stay UTF-8, or the wire refuses them before we see them.
      if (field.type() == FieldDescriptor::TYPE_STRING) {
        for (char& c : bytes) c = static_cast<char>(c & 0x7F);
      }
      reflection.SetString(&message, &field, bytes);
      break;
    }
    default:
      break;  // no other type in our requests
  }
}

void MessageMutator::MutateRepeated(Message& message, const FieldDescriptor& field) {
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return;
  const auto& reflection = *message.GetReflection();
  const int count = reflection.FieldSize(message, &field);
  const uint64_t choice = Below(8);
  if (choice == 0) {
    reflection.AddMessage(&message, &field);
  } else if (choice == 1 && count > 0) {
    reflection.RemoveLast(&message, &field);
  } else if (choice == 2 && count > 0) {
    const uint64_t copies = Below(2) == 0 ? 1 : 300;
    for (uint64_t i = 0; i < copies; ++i) {
      reflection.AddMessage(&message, &field)
          ->CopyFrom(reflection.GetRepeatedMessage(message, &field, 0));
    }
  } else if (count > 0) {
    const auto index = static_cast<int>(Below(static_cast<uint64_t>(count)));
    Mutate(*reflection.MutableRepeatedMessage(&message, &field, index));
  }
}

void MessageMutator::MutateField(Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  if (field.is_repeated()) {
    MutateRepeated(message, field);
  } else if (Below(12) == 0) {
    reflection.ClearField(&message, &field);
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    Mutate(*reflection.MutableMessage(&message, &field));
  } else {
    SetNumber(message, field);
  }
}

void MessageMutator::Mutate(Message& message) {
  const auto& descriptor = *message.GetDescriptor();
  if (descriptor.field_count() == 0) return;
  const auto pick = static_cast<int>(Below(static_cast<uint64_t>(descriptor.field_count())));
  MutateField(message, *descriptor.field(pick));
}

void MessageMutator::MutateBytes(std::string& bytes) {
  switch (Below(5)) {
    case 0:
      bytes.resize(Below(bytes.size() + 1));
      break;
    case 1:
      if (!bytes.empty()) bytes[Below(bytes.size())] = static_cast<char>(random_());
      break;
    case 2:
      bytes.insert(Below(bytes.size() + 1), 1 + Below(8), static_cast<char>(random_()));
      break;
    case 3:
      bytes += bytes.substr(0, 4096);
      break;
    default: {  // a whole int32 at an edge
      const auto value = static_cast<uint32_t>(BoundaryInteger());
      if (bytes.size() < sizeof value) bytes.resize(sizeof value);
      const size_t at = Below(bytes.size() / sizeof value) * sizeof value;
      for (size_t i = 0; i < sizeof value; ++i) {
        bytes[at + i] = static_cast<char>(value >> (8 * i));
      }
    }
  }
}

}  // namespace kvtriage
