// For tests that speak gRPC, under ThreadSanitizer. Debian's gRPC, Abseil and Protobuf libraries
// are not instrumented, so TSan can't see how they synchronise and calls each hand-over between
// their threads a race. Stacks that don't pass through them are judged as ever.

#if defined(__SANITIZE_THREAD__)
extern "C" const char* __tsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)
const char* __tsan_default_suppressions() {            // NOLINT(bugprone-reserved-identifier)
  return "race:libgrpc.so\n"
         "race:libgpr.so\n"
         "race:libgrpc++.so\n"
         "race:libupb.so\n"
         "race:libabsl_\n"
         "race:/usr/include/grpcpp/\n"
         "race:grpc::internal::\n"
         "race:muster/v1/admission.grpc.pb\n"
         "mutex:libgrpc.so\n";
}
#endif
