// Throw-away certificates for tests.
#pragma once

#include <string>

namespace muster::kube {

struct TestCertificate {
  std::string certificate_pem;
  std::string key_pem;
};

// Signed by itself; may sign others.
TestCertificate MakeTestAuthority(const std::string& name);
// `alternative_names` as OpenSSL writes them: "DNS:api.test,IP:127.0.0.1".
TestCertificate MakeTestCertificate(const std::string& name, const std::string& alternative_names,
                                    const TestCertificate& authority);

}  // namespace muster::kube
