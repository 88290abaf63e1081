#include "kube/client/kubeconfig.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>

#include "absl/time/clock.h"
#include "kube/client/curl_transport.h"
#include "kube/client/scripted_server.h"
#include "kube/client/subprocess.h"

namespace muster::kube {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Kubeconfig : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/kubeconfig-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
    return path;
  }
  void WriteScript(const std::string& name, const std::string& body) {
    const std::string path = Write(name, "#!/bin/sh\n" + body);
    chmod(path.c_str(), 0755);
  }
  // A kubeconfig with one context whose cluster and user have these fields, in YAML flow style.
  std::string WriteConfig(const std::string& cluster, const std::string& user) {
    return Write("config", fmt::format(R"(
apiVersion: v1
kind: Config
current-context: main
contexts: [{{name: main, context: {{cluster: here, user: me, namespace: team}}}}]
clusters: [{{name: here, cluster: {{{}}}}}]
users: [{{name: me, user: {{{}}}}}]
)",
                                       cluster, user));
  }
  static std::string ErrorOf(const absl::StatusOr<ClientConfig>& config) {
    return std::string(config.status().message());
  }
  std::string UserError(const std::string& user) {
    return ErrorOf(LoadKubeconfig({WriteConfig("server: 'https://h'", user)}));
  }

  std::string folder_;
};

TEST_F(Kubeconfig, ReadsClusterAndToken) {
  const auto config = LoadKubeconfig({WriteConfig(
      "server: 'https://h:6443/', certificate-authority-data: UEVN, tls-server-name: kubernetes, "
      "proxy-url: 'http://p:1'",
      "token: sesame")});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->server, "https://h:6443");
  EXPECT_EQ(config->ca_pem, "PEM");
  EXPECT_EQ(config->tls_server_name, "kubernetes");
  EXPECT_EQ(config->proxy_url, "http://p:1");
  EXPECT_EQ(config->name_space, "team");
  EXPECT_FALSE(config->insecure);
  const auto identity = config->credentials->Fetch();
  ASSERT_TRUE(identity.ok());
  EXPECT_EQ(identity->token, "sesame");
  EXPECT_EQ(identity->refresh_at, absl::InfiniteFuture());
}

TEST_F(Kubeconfig, FilesAreRelativeToTheirKubeconfigAndReadAnew) {
  Write("pki/ca.pem", "CA");
  Write("pki/user.pem", "CERT");
  Write("pki/user.key", "KEY");
  Write("token", "first\n");
  const auto config = LoadKubeconfig({WriteConfig(
      "server: 'https://h', certificate-authority: pki/ca.pem",
      "client-certificate: pki/user.pem, client-key: pki/user.key, tokenFile: token")});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->ca_pem, "CA");
  auto identity = config->credentials->Fetch();
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(identity->certificate_pem, "CERT");
  EXPECT_EQ(identity->key_pem, "KEY");
  EXPECT_EQ(identity->token, "first");
  EXPECT_LE(identity->refresh_at, absl::Now() + absl::Minutes(1));
  Write("token", "second");
  EXPECT_EQ(config->credentials->Fetch()->token, "second");
  Write("token", "\n");
  EXPECT_THAT(std::string(config->credentials->Fetch().status().message()),
              HasSubstr("token is empty"));
}

TEST_F(Kubeconfig, TheFirstFileThatNamesAnEntryWins) {
  const std::string first = Write("first", R"(
current-context: main
clusters: [{name: here, cluster: {server: 'https://first'}}]
)");
  const std::string second = Write("second", R"(
current-context: other
clusters: [{name: here, cluster: {server: 'https://second'}},
           {name: there, cluster: {server: 'http://there'}}]
contexts: [{name: main, context: {cluster: here}}, {name: other, context: {cluster: there}}]
)");
  const auto main = LoadKubeconfig({folder_ + "/missing", first, second});
  ASSERT_TRUE(main.ok()) << main.status();
  EXPECT_EQ(main->server, "https://first");
  EXPECT_EQ(main->name_space, "default");
  EXPECT_EQ(main->credentials->Fetch()->token, "");
  const auto other = LoadKubeconfig({first, second}, {.context = "other"});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->server, "http://there");
}

TEST_F(Kubeconfig, EnvironmentNamesTheFiles) {
  const std::string path = WriteConfig("server: 'https://from-env'", "token: t");
  setenv("KUBECONFIG", ("/does/not/exist::" + path).c_str(), 1);
  const auto config = LoadClientConfig("");
  unsetenv("KUBECONFIG");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->server, "https://from-env");
}

TEST_F(Kubeconfig, ErrorsAreShortTextWhateverTheFileHolds) {
  EXPECT_THAT(ErrorOf(LoadKubeconfig({Write("latin1", "current-context: caf\xE9\n")})),
              HasSubstr("/latin1: not UTF-8"));
  const std::string name(100'000, 'x');
  EXPECT_LT(ErrorOf(LoadKubeconfig({Write("long", "current-context: " + name + "\n")})).size(),
            2'000U);
}

TEST_F(Kubeconfig, ErrorsNameFileEntryAndField) {
  EXPECT_THAT(ErrorOf(LoadKubeconfig({folder_ + "/none"})), HasSubstr("/none: No such file"));
  EXPECT_THAT(ErrorOf(LoadKubeconfig({folder_ + "/a", folder_ + "/b"})), HasSubstr("none of"));
  EXPECT_THAT(ErrorOf(LoadKubeconfig({Write("bad", "a: [")})), HasSubstr("/bad: yaml-cpp: error"));
  EXPECT_THAT(ErrorOf(LoadKubeconfig({Write("list", "- a")})), HasSubstr("want a mapping"));
  EXPECT_THAT(ErrorOf(LoadKubeconfig({Write("empty", "{}")})), HasSubstr("current-context"));
  EXPECT_THAT(ErrorOf(LoadKubeconfig({Write("nocontext", "current-context: x")})),
              HasSubstr("no context \"x\""));
  EXPECT_THAT(ErrorOf(LoadKubeconfig({WriteConfig("server: h", "")})),
              AllOf(HasSubstr("clusters[here]"), HasSubstr("server is \"h\"")));
  EXPECT_THAT(ErrorOf(LoadKubeconfig(
                  {WriteConfig("server: 'https://h', certificate-authority-data: '*'", "")})),
              HasSubstr("certificate-authority-data is not base64"));
  EXPECT_THAT(ErrorOf(LoadKubeconfig(
                  {WriteConfig("server: 'https://h', certificate-authority: gone.pem", "")})),
              HasSubstr("gone.pem"));
  EXPECT_THAT(UserError("client-certificate-data: UEVN"),
              AllOf(HasSubstr("users[me]"), HasSubstr("client key")));
  for (const char* key : {"username", "password", "as", "auth-provider"}) {
    EXPECT_THAT(UserError(fmt::format("{}: x", key)), HasSubstr(fmt::format("{} is not", key)));
  }
  EXPECT_THAT(UserError("exec: {command: c}"), HasSubstr("users[me].exec: apiVersion is \"\""));
  EXPECT_THAT(UserError("exec: {apiVersion: client.authentication.k8s.io/v1}"),
              HasSubstr("command is missing"));
  EXPECT_THAT(UserError("token: {a: secret-value}"),
              AllOf(HasSubstr("token is not a string"), Not(HasSubstr("secret-value"))));
}

TEST_F(Kubeconfig, RunsAnExecPlugin) {
  WriteScript("bin/plugin", R"(
echo "$KUBERNETES_EXEC_INFO" > "$(dirname "$0")/info"
echo "$1 $EXTRA" > "$(dirname "$0")/args"
cat <<END
{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",
 "status":{"token":"from-plugin","expirationTimestamp":"$EXPIRY"}}
END
)");
  const std::string expiry =
      absl::FormatTime(absl::RFC3339_sec, absl::Now() + absl::Minutes(10), absl::UTCTimeZone());
  const auto config = LoadKubeconfig({WriteConfig(
      "server: 'https://h', certificate-authority-data: UEVN",
      fmt::format("exec: {{apiVersion: client.authentication.k8s.io/v1, command: ./bin/plugin, "
                  "args: [get-token], provideClusterInfo: true, env: [{{name: EXTRA, value: more}},"
                  "{{name: EXPIRY, value: '{}'}}]}}",
                  expiry))});
  ASSERT_TRUE(config.ok()) << config.status();
  const auto identity = config->credentials->Fetch();
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(identity->token, "from-plugin");
  EXPECT_GT(identity->refresh_at, absl::Now() + absl::Minutes(9));
  EXPECT_LT(identity->refresh_at, absl::Now() + absl::Minutes(10));
  EXPECT_EQ(*ReadSmallFile(folder_ + "/bin/args", 100), "get-token more\n");
  EXPECT_THAT(*ReadSmallFile(folder_ + "/bin/info", 1000),
              AllOf(HasSubstr(R"("interactive":false)"), HasSubstr(R"("server":"https://h")"),
                    HasSubstr(R"("certificate-authority-data":"UEVN")")));
}

TEST_F(Kubeconfig, ExplainsAFailingExecPluginWithoutItsOutput) {
  const auto error = [&](const std::string& body, const std::string& extra = "") {
    WriteScript("plugin", body);
    const auto config =
        LoadKubeconfig({WriteConfig("server: 'https://h'",
                                    "exec: {apiVersion: client.authentication.k8s.io/v1beta1, "
                                    "command: ./plugin" +
                                        extra + "}")});
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? std::string(config->credentials->Fetch().status().message()) : "";
  };
  EXPECT_THAT(error("echo 'log in first' >&2; exit 3"),
              AllOf(HasSubstr("exited with 3"), HasSubstr("log in first")));
  EXPECT_THAT(error("echo secret"), AllOf(HasSubstr("not a JSON"), Not(HasSubstr("secret"))));
  EXPECT_THAT(
      error(R"(echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",
                             "status":{"token":"secret"}}')"),
      AllOf(HasSubstr("apiVersion differs"), Not(HasSubstr("secret"))));
  EXPECT_THAT(
      error(R"(echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1",
                      "status":{"token":"secret","expirationTimestamp":"2001-01-01T00:00:00Z"}}')"),
      AllOf(HasSubstr("already expired"), Not(HasSubstr("secret"))));
  EXPECT_THAT(
      error(R"(echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1",
                      "status":{"token":["secret"]}}')"),
      AllOf(HasSubstr("status.token is not a string"), Not(HasSubstr("secret"))));
  std::filesystem::remove(folder_ + "/plugin");
  const auto missing = LoadKubeconfig({WriteConfig(
      "server: 'https://h'",
      "exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-program-here, "
      "installHint: get it from the shelf}")});
  ASSERT_TRUE(missing.ok());
  EXPECT_THAT(std::string(missing->credentials->Fetch().status().message()),
              HasSubstr("get it from the shelf"));
}

TEST_F(Kubeconfig, AnExecPluginIsRunAgainWhenItsTokenIsRefused) {
  WriteScript("plugin", R"(
echo x >> "$(dirname "$0")/runs"
n=$(wc -l < "$(dirname "$0")/runs")
echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"'$n'"}}'
)");
  ScriptedServer server([](const ScriptedRequest& request, ScriptedConnection& connection) {
    connection.Reply(request.headers.at("authorization") == "Bearer 2" ? 200 : 401, "");
  });
  auto config = LoadKubeconfig(
      {WriteConfig(fmt::format("server: '{}'", server.url()),
                   "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin}")});
  ASSERT_TRUE(config.ok()) << config.status();
  CurlTransportOptions options;
  options.refetch_interval = absl::ZeroDuration();
  auto transport = CurlTransport::Create(*config, options);
  ASSERT_TRUE(transport.ok());
  constexpr int kRequests = 50;
  std::atomic<int> left = kRequests;
  std::promise<void> all;
  for (int i = 0; i < kRequests; ++i) {
    Request request;
    request.path = "/api";
    (*transport)->Send(request, [&](absl::StatusOr<Response> answer) {
      EXPECT_TRUE(answer.ok() && answer->status == 200) << answer.status();
      if (--left == 0) all.set_value();
    });
  }
  all.get_future().wait();
  EXPECT_EQ(*ReadSmallFile(folder_ + "/runs", 100), "x\nx\n");
}

// As `aws eks update-kubeconfig` writes it, and as `aws eks get-token` answers.
TEST_F(Kubeconfig, LogsInToEks) {
  WriteScript("aws", R"(
echo "$*" >> "$(dirname "$0")/runs"
[ "$AWS_PROFILE" = training ] || { echo 'The config profile could not be found' >&2; exit 255; }
echo '{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1beta1", "spec": {},
 "status": {"expirationTimestamp": "'$(date -u -d '+14 minutes' +%Y-%m-%dT%H:%M:%SZ)'",
            "token": "k8s-aws-v1.aHR0cHM6"}}'
)");
  ScriptedServer server([](const ScriptedRequest& request, ScriptedConnection& connection) {
    const bool known = request.headers.at("authorization") == "Bearer k8s-aws-v1.aHR0cHM6";
    connection.Reply(known ? 200 : 401, "");
  });
  const std::string arn = "arn:aws:eks:eu-central-1:111122223333:cluster/gpus";
  const std::string path = Write("config", fmt::format(R"(
apiVersion: v1
clusters:
- cluster:
    server: {0}
  name: {1}
contexts:
- context:
    cluster: {1}
    user: {1}
  name: gpus
current-context: {1}
kind: Config
preferences: {{}}
users:
- name: {1}
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      args:
      - --region
      - eu-central-1
      - eks
      - get-token
      - --cluster-name
      - gpus
      - --output
      - json
      command: aws
      env:
      - name: AWS_PROFILE
        value: training
)",
                                                       server.url(), arn));
  const std::string programs = getenv("PATH");
  setenv("PATH", (folder_ + ":" + programs).c_str(), 1);
  const auto config = LoadKubeconfig({path}, {.context = "gpus", .by_person = true});
  ASSERT_TRUE(config.ok()) << config.status();
  const auto identity = config->credentials->Fetch();
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_GT(identity->refresh_at, absl::Now() + absl::Minutes(13));
  ClientConfig logged_in = *config;
  logged_in.credentials = StartingWith(*identity, config->credentials);
  auto transport = CurlTransport::Create(logged_in);
  ASSERT_TRUE(transport.ok());
  for (int i = 0; i < 3; ++i) {
    std::promise<int> status;
    (*transport)->Send({.path = "/version"}, [&](absl::StatusOr<Response> answer) {
      status.set_value(answer.ok() ? answer->status : 0);
    });
    EXPECT_EQ(status.get_future().get(), 200);
  }
  setenv("PATH", programs.c_str(), 1);
  // By one run: its token is good for a quarter of an hour.
  EXPECT_EQ(*ReadSmallFile(folder_ + "/runs", 1000),
            "--region eu-central-1 eks get-token --cluster-name gpus --output json\n");
}

// Standard input is a terminal while it lives.
class Terminal {
 public:
  Terminal() : keyboard_(posix_openpt(O_RDWR | O_NOCTTY)), before_(dup(STDIN_FILENO)) {
    grantpt(keyboard_);
    unlockpt(keyboard_);
    const int screen = open(ptsname(keyboard_), O_RDWR | O_NOCTTY);
    dup2(screen, STDIN_FILENO);
    close(screen);
  }
  ~Terminal() {
    dup2(before_, STDIN_FILENO);
    close(before_);
    close(keyboard_);
  }
  void Type(const std::string& text) {
    EXPECT_EQ(write(keyboard_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

 private:
  const int keyboard_;
  const int before_;
};

TEST_F(Kubeconfig, APluginMayAskWhoSitsAtTheTerminal) {
  WriteScript("plugin", R"(
read -r code
echo "$KUBERNETES_EXEC_INFO" > "$(dirname "$0")/info"
echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",
       "status":{"token":"with-'$code'"}}'
)");
  const auto load = [&](const std::string& mode, bool by_person) {
    return LoadKubeconfig({WriteConfig("server: 'https://h'",
                                       "exec: {apiVersion: client.authentication.k8s.io/v1, "
                                       "command: ./plugin, interactiveMode: " +
                                           mode + "}")},
                          {.by_person = by_person});
  };
  Terminal terminal;
  const auto config = load("IfAvailable", true);
  ASSERT_TRUE(config.ok()) << config.status();
  terminal.Type("123456\n");
  const auto identity = config->credentials->Fetch();
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(identity->token, "with-123456");
  EXPECT_THAT(*ReadSmallFile(folder_ + "/info", 1000), HasSubstr(R"("interactive":true)"));
  EXPECT_TRUE(load("Always", true).ok());
  // A service has nobody to ask.
  EXPECT_THAT(ErrorOf(load("Always", false)), HasSubstr("there is no terminal"));
  for (const auto& [mode, by_person] : {std::pair{"IfAvailable", false}, {"Never", true}}) {
    EXPECT_EQ(load(mode, by_person)->credentials->Fetch()->token, "with-");
  }
}

TEST_F(Kubeconfig, APersonsProxyCounts) {
  ScriptedServer proxy([](const ScriptedRequest& request, ScriptedConnection& connection) {
    connection.Reply(200, request.target);
  });
  const std::string path = WriteConfig("server: 'http://api.invalid:6443'", "token: t");
  setenv("http_proxy", proxy.url().c_str(), 1);
  const auto ask = [&](bool by_person) {
    const auto transport =
        *CurlTransport::Create(*LoadKubeconfig({path}, {.by_person = by_person}));
    std::promise<std::string> body;
    transport->Send({.path = "/version"}, [&](absl::StatusOr<Response> answer) {
      body.set_value(answer.ok() ? answer->body : "no answer");
    });
    return body.get_future().get();
  };
  EXPECT_EQ(ask(true), "http://api.invalid:6443/version");
  EXPECT_EQ(ask(false), "no answer");
  unsetenv("http_proxy");
}

TEST_F(Kubeconfig, InAPodTheServiceAccountIsUsed) {
  Write("ca.crt", "CA");
  Write("token", "pod-token\n");
  Write("namespace", "kube-system");
  unsetenv("KUBERNETES_SERVICE_HOST");
  EXPECT_TRUE(absl::IsFailedPrecondition(LoadInClusterConfig(folder_).status()));
  setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
  setenv("KUBERNETES_SERVICE_PORT", "443", 1);
  const auto config = LoadInClusterConfig(folder_);
  unsetenv("KUBERNETES_SERVICE_HOST");
  unsetenv("KUBERNETES_SERVICE_PORT");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->server, "https://[fd00::1]:443");
  EXPECT_EQ(config->ca_pem, "CA");
  EXPECT_EQ(config->name_space, "kube-system");
  EXPECT_EQ(config->credentials->Fetch()->token, "pod-token");
}

TEST(Subprocess, IsBoundedInTimeAndOutput) {
  Subprocess slow{"/bin/sh", {"-c", "sleep 60 & sleep 60"}, {}, absl::Milliseconds(100), 100};
  const absl::Time start = absl::Now();
  EXPECT_TRUE(absl::IsDeadlineExceeded(RunSubprocess(slow).status()));
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  Subprocess loud{"/bin/sh", {"-c", "yes"}, {}, absl::Seconds(20), 1000};
  EXPECT_TRUE(absl::IsResourceExhausted(RunSubprocess(loud).status()));
  Subprocess missing{"/no/such/program", {}, {}, absl::Seconds(1), 100};
  EXPECT_TRUE(absl::IsNotFound(RunSubprocess(missing).status()));
}

TEST(Subprocess, KeepsOutputExitCodeAndTheFirstErrorLine) {
  Subprocess program{
      "sh", {"-c", "echo out; echo one >&2; echo two >&2; exit 7"}, {}, absl::Seconds(10), 100};
  const auto result = RunSubprocess(program);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->output, "out\n");
  EXPECT_EQ(result->error_text, "one");
  EXPECT_EQ(result->exit_code, 7);
  Subprocess killed{"sh", {"-c", "kill -9 $$"}, {}, absl::Seconds(10), 100};
  EXPECT_EQ(RunSubprocess(killed)->exit_code, 137);
  // What it leaves running keeps the pipe open, but isn't waited for.
  Subprocess daemon{"sh", {"-c", "sleep 3 & echo done"}, {}, absl::Seconds(2), 100};
  const auto left = RunSubprocess(daemon);
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_EQ(left->output, "done\n");
}

}  // namespace
}  // namespace muster::kube
