// Deterministic damage to a message: boundary numbers in any field at any depth, grown and shrunk
// lists, cut and flipped bytes.
#ifndef KVTRIAGE_TESTS_UNIT_VALIDATE_MESSAGE_MUTATOR_H_
#define KVTRIAGE_TESTS_UNIT_VALIDATE_MESSAGE_MUTATOR_H_

#include <cstdint>
#include <random>
#include <string>

#include "google/protobuf/message.h"

namespace kvtriage {

class MessageMutator {
 public:
  explicit MessageMutator(uint64_t seed) : random_(seed) {}

  // Changes one random field of `message` or of a message inside it.
  void Mutate(google::protobuf::Message& message);

  // Cuts, flips, repeats or inserts bytes of a serialised message.
  void MutateBytes(std::string& bytes);

  uint64_t Below(uint64_t n) { return random_() % n; }

 private:
  void MutateField(google::protobuf::Message& message, const google::protobuf::FieldDescriptor& f);
  void MutateRepeated(google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field);
  void SetNumber(google::protobuf::Message& message,
                 const google::protobuf::FieldDescriptor& field);
  uint64_t BoundaryInteger();
  double BoundaryDouble();

  std::mt19937_64 random_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_VALIDATE_MESSAGE_MUTATOR_H_
