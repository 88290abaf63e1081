#include "yaml/tree.h"

#include <simdjson.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <istream>
#include <map>
#include <set>
#include <streambuf>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kube/objects/excerpt.h"

namespace muster::yaml {
namespace {

// The pieces between separators, empty ones too.
std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (size_t end; (end = text.find(separator)) != std::string_view::npos;) {
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  pieces.push_back(text);
  return pieces;
}

constexpr std::string_view kMergeKey = "<<";

[[noreturn]] void Fail(int line, std::string_view message) {
  throw YamlError{line, kube::Excerpt(message)};
}

int LineOf(const YAML::Mark& mark) { return mark.line + 1; }

// How many bytes the UTF-8 character at the front has, 0 if it isn't one.
size_t CharacterSize(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t size = lead >= 0xC2 && lead <= 0xDF   ? 2
                      : lead >= 0xE0 && lead <= 0xEF ? 3
                      : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                     : 0;
  if (size == 0 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what is past U+10FFFF.
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F) ||
      (lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) {
    return 0;
  }
  return size;
}

// Before the parser sees them: it takes some control characters for the end of its input.
void CheckCharacters(std::string_view text) {
  int line = 1;
  while (!text.empty()) {
    const size_t size = CharacterSize(text);
    const auto byte = static_cast<unsigned char>(text.front());
    if (size == 0) {
      Fail(line, fmt::format("byte 0x{:02x} is not UTF-8, which manifests must be in", byte));
    }
    if ((byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F) {
      Fail(line, fmt::format("control character 0x{:02x}, which YAML doesn't allow", byte));
    }
    if (byte == '\n') ++line;
    text.remove_prefix(size);
  }
}

std::string_view IndentationOf(std::string_view line) {
  return line.substr(0, line.find_first_not_of(" \t"));
}

bool HasTabIndentation(const std::vector<std::string_view>& lines, int line) {
  if (line < 1 || static_cast<size_t>(line) > lines.size()) return false;
  return IndentationOf(lines[static_cast<size_t>(line) - 1]).find('\t') != std::string_view::npos;
}

// Whether a block scalar that keeps its lines begins on this line: "key: |", "- |2-  # comment".
bool BeginsLiteral(std::string_view line) {
  if (const size_t comment = line.rfind(" #"); comment != std::string_view::npos) {
    line = line.substr(0, comment);
  }
  const size_t end = line.find_last_not_of(" \t\r");
  if (end == std::string_view::npos) return false;
  line = line.substr(0, end + 1);
  while (!line.empty() &&
         (line.back() == '-' || line.back() == '+' || (line.back() >= '0' && line.back() <= '9'))) {
    line.remove_suffix(1);
  }
  if (!line.ends_with('|')) return false;
  return line.size() == 1 || line[line.size() - 2] == ' ';
}

constexpr const char* kTabMessage = "a tab in the indentation; YAML is indented by spaces only";

// Builds the tree from the parser's events. Throws YamlError.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(size_t bytes, const std::vector<std::string_view>& lines, YamlFile* file)
      : bytes_(bytes), lines_(lines), file_(file) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    document_line_ = LineOf(mark);
    root_ = nullptr;
    anchors_.clear();
    open_.clear();
  }

  void OnDocumentEnd() override {
    if (root_ == nullptr || root_->kind == YamlNode::Kind::kNull) return;
    file_->documents.emplace_back(root_, root_->line);
  }

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Add(NewNode(YamlNode::Kind::kNull, mark), anchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    CheckIndentation(mark);
    YamlNode* node = NewNode(YamlNode::Kind::kScalar, mark);
    // The parser makes one byte, which isn't UTF-8, of each of these two.
    if (!simdjson::validate_utf8(value.data(), value.size())) {
      Fail(node->line, "the escape \\N or \\_, which is not read; write the character itself");
    }
    node->quoted = tag == "!" || tag == "tag:yaml.org,2002:str";
    if (!node->quoted &&
        (value.empty() || value == "~" || value == "null" || value == "Null" || value == "NULL")) {
      node->kind = YamlNode::Kind::kNull;
    }
    node->text = value;
    node->literal = tag == "!" && IsLiteral(mark);
    Add(node, anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto known = anchors_.find(anchor);
    if (known == anchors_.end()) {
      Fail(LineOf(mark), "an alias inside the value that it stands for");
    }
    Count(known->second->values, LineOf(mark));
    Place(known->second, LineOf(mark));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    Open(YamlNode::Kind::kSequence, mark, anchor, style);
  }
  void OnSequenceEnd() override { Close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    Open(YamlNode::Kind::kMapping, mark, anchor, style);
  }
  void OnMapEnd() override {
    Merge(open_.back().node);
    Close();
  }

 private:
  struct OpenNode {
    YamlNode* node = nullptr;
    YAML::anchor_t anchor = YAML::NullAnchor;
    bool flow = false;
    bool has_key = false;
    YamlField field;
    std::map<std::string, int> keys;  // and their lines
  };

  // A scalar that isn't plain: in quotes, or a block. Only the start of the line is looked at,
  // unless an anchor stands there: all of a file may stand in one line.
  bool IsLiteral(const YAML::Mark& mark) const {
    if (!open_.empty() && open_.back().flow) return false;
    const auto line = static_cast<size_t>(LineOf(mark));
    if (mark.is_null() || line > lines_.size()) return false;
    const std::string_view text = lines_[line - 1];
    const auto column = static_cast<size_t>(mark.column);
    if (column < text.size() && (text[column] == '"' || text[column] == '\'')) return false;
    return BeginsLiteral(text);
  }

  void Count(int64_t values, int line) {
    values_ += values;
    if (values_ > kMaxYamlValues) {
      Fail(line, absl::StrCat("more than ", kMaxYamlValues, " values, with aliases written out"));
    }
  }

  YamlNode* NewNode(YamlNode::Kind kind, const YAML::Mark& mark) {
    // The parser gives no place to some values that aren't written.
    const int line = mark.is_null() ? document_line_ : LineOf(mark);
    Count(1, line);
    // The parser finds documents without end in some texts that are no YAML. Not even "?", an entry
    // without key and value, stands for more than three values.
    if (file_->nodes.size() > 3 * bytes_ + 1) Fail(line, "not YAML: more values than bytes");
    YamlNode& node = file_->nodes.emplace_back();
    node.kind = kind;
    node.line = line;
    return &node;
  }

  // Tabs are allowed between a key and its value and inside of text, but not before what stands
  // first on a line of block style.
  void CheckIndentation(const YAML::Mark& mark) {
    if (mark.is_null() || (!open_.empty() && open_.back().flow)) return;
    const int line = LineOf(mark);
    if (!HasTabIndentation(lines_, line)) return;
    const std::string_view indentation = IndentationOf(lines_[static_cast<size_t>(line) - 1]);
    if (static_cast<size_t>(mark.column) <= indentation.size()) Fail(line, kTabMessage);
  }

  void Open(YamlNode::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor,
            YAML::EmitterStyle::value style) {
    CheckIndentation(mark);
    if (open_.size() >= static_cast<size_t>(kMaxYamlDepth)) {
      Fail(LineOf(mark), absl::StrCat("nested deeper than ", kMaxYamlDepth, " levels"));
    }
    OpenNode& opened = open_.emplace_back();
    opened.node = NewNode(kind, mark);
    opened.anchor = anchor;
    opened.flow = style == YAML::EmitterStyle::Flow;
  }

  void Close() {
    OpenNode closed = std::move(open_.back());
    open_.pop_back();
    Add(closed.node, closed.anchor);
  }

  void Add(YamlNode* node, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) anchors_[anchor] = node;
    Place(node, node->line);
  }

  void Place(const YamlNode* node, int line) {
    if (open_.empty()) {
      root_ = node;
      return;
    }
    OpenNode& parent = open_.back();
    parent.node->values += node->values;
    if (parent.node->kind == YamlNode::Kind::kSequence) {
      parent.node->items.push_back(node);
    } else if (!parent.has_key) {
      TakeKey(&parent, node, line);
    } else {
      parent.has_key = false;
      parent.field.value = node;
      parent.node->fields.push_back(std::move(parent.field));
    }
  }

  static void TakeKey(OpenNode* parent, const YamlNode* node, int line) {
    if (node->kind != YamlNode::Kind::kScalar) {
      Fail(line, "a key must be a word or a number, not null or a structure");
    }
    const auto [first, is_new] = parent->keys.emplace(node->text, line);
    if (!is_new) {
      Fail(line, absl::StrCat("key ", node->text, " stands twice, first in line ", first->second));
    }
    parent->has_key = true;
    parent->field = {node->text, line, nullptr};
  }

  // "<<: *base" gives a mapping the fields of another, as far as it doesn't have them itself.
  static void Merge(YamlNode* node) {
    const auto merge = std::ranges::find(node->fields, kMergeKey, &YamlField::key);
    if (merge == node->fields.end()) return;
    YamlField field = std::move(*merge);
    node->fields.erase(merge);
    std::set<std::string_view> keys;
    for (const YamlField& own : node->fields) keys.insert(own.key);
    std::vector<const YamlNode*> bases = {field.value};
    if (field.value->kind == YamlNode::Kind::kSequence) bases = field.value->items;
    std::vector<YamlField> merged;
    for (const YamlNode* base : bases) {
      if (base->kind != YamlNode::Kind::kMapping) {
        Fail(field.line, "<< takes a mapping, or a list of mappings");
      }
      for (const YamlField& inherited : base->fields) {
        if (keys.insert(inherited.key).second) merged.push_back(inherited);
      }
    }
    std::ranges::move(merged, std::back_inserter(node->fields));
  }

  const size_t bytes_;
  const std::vector<std::string_view>& lines_;
  YamlFile* const file_;
  int document_line_ = 1;
  const YamlNode* root_ = nullptr;
  int64_t values_ = 0;  // of all documents
  std::map<YAML::anchor_t, const YamlNode*> anchors_;
  std::vector<OpenNode> open_;
};

// Reads a view without copying it.
class ViewBuffer : public std::streambuf {
 public:
  explicit ViewBuffer(std::string_view text) {
    char* begin = const_cast<char*>(text.data());  // streambuf's interface; never written to
    setg(begin, begin, begin + text.size());
  }
};

void Parse(std::string_view text, YamlFile* file) {
  if (text.size() > kMaxYamlBytes) {
    const std::string_view read = text.substr(0, kMaxYamlBytes);
    Fail(static_cast<int>(std::ranges::count(read, '\n')) + 1,
         absl::StrCat("the file goes on past ", kMaxYamlBytes, " bytes, more than is read"));
  }
  CheckCharacters(text);
  const std::vector<std::string_view> lines = Split(text, '\n');
  TreeBuilder builder(text.size(), lines, file);
  try {
    ViewBuffer buffer(text);
    std::istream stream(&buffer);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    int line = error.mark.is_null() ? 1 : LineOf(error.mark);
    line = std::clamp(line, 1, static_cast<int>(lines.size()));
    // The parser stumbles over the tab itself, or over what comes right after it.
    for (const int at : {line, line - 1}) {
      if (HasTabIndentation(lines, at)) Fail(at, kTabMessage);
    }
    Fail(line, absl::StrCat("not YAML: ", error.msg));
  }
}

// What YAML 1.1, Kubernetes' own reader, takes for a boolean, null or a number.
bool LooksLikeAnotherType(std::string_view text) {
  static const auto* words = new std::set<std::string, std::less<>>{
      "true", "false", "yes", "no",   "on",    "off",   "y",
      "n",    "null",  "~",   ".inf", "+.inf", "-.inf", ".nan"};
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (text.empty() || words->contains(lower)) return true;
  return lower.find_first_not_of("0123456789.+-exo_") == std::string::npos ||
         (lower.starts_with("0x") && lower.find_first_not_of("0123456789abcdef_", 2) == lower.npos);
}

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

// Whether it can stand without quotes as a key and as a value.
bool IsPlain(std::string_view text) {
  return !text.empty() && text.find_first_of("\"'\\#:{}[],&*!|>%@`") == std::string_view::npos &&
         text.front() != ' ' && text.back() != ' ' && text.front() != '-' && text.front() != '?' &&
         text != "..." && !text.starts_with("\xEF\xBB\xBF") &&
         std::ranges::none_of(text, IsControl);
}

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (IsControl(c)) {
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string ScalarText(const YamlNode& node) {
  const bool plain = IsPlain(node.text) && (!node.quoted || !LooksLikeAnotherType(node.text));
  return plain ? node.text : Quoted(node.text);
}

// A key is text whatever it looks like, unless it looks like null.
std::string KeyText(const std::string& key) {
  const bool plain = IsPlain(key) && key != "~" && key != "null" && key != "Null" && key != "NULL";
  return plain ? key : Quoted(key);
}

// Whether the scalar can be written as the block that it was.
bool FitsLiteral(const YamlNode& node) {
  const std::string_view text = node.text;
  return node.literal && text.ends_with('\n') && !text.ends_with("\n\n") && text.size() > 1 &&
         text.find_first_of(" \t\n") != 0 &&
         std::ranges::none_of(text, [](char c) { return IsControl(c) && c != '\n' && c != '\t'; });
}

void Emit(const YamlNode& node, int indent, std::string* out);

// What follows "key:" or stands after "- ", the newline included.
void EmitAfterKey(const YamlNode& node, int indent, std::string* out) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      absl::StrAppend(out, "\n");
      return;
    case YamlNode::Kind::kScalar:
      if (FitsLiteral(node)) {
        absl::StrAppend(out, " |\n");
        const std::string_view text(node.text);
        for (const std::string_view line : Split(text.substr(0, text.size() - 1), '\n')) {
          if (!line.empty()) *out += margin;
          *out += line;
          *out += '\n';
        }
      } else {
        absl::StrAppend(out, " ", ScalarText(node), "\n");
      }
      return;
    case YamlNode::Kind::kSequence:
    case YamlNode::Kind::kMapping:
      if (node.items.empty() && node.fields.empty()) {
        absl::StrAppend(out, node.kind == YamlNode::Kind::kSequence ? " []\n" : " {}\n");
        return;
      }
      absl::StrAppend(out, "\n");
      Emit(node, indent, out);
  }
}

void Emit(const YamlNode& node, int indent, std::string* out) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  for (const YamlField& field : node.fields) {
    absl::StrAppend(out, margin, KeyText(field.key), ":");
    EmitAfterKey(*field.value, indent + 2, out);
  }
  for (const YamlNode* item : node.items) {
    if (item->kind == YamlNode::Kind::kMapping && !item->fields.empty()) {
      // The first field stands beside the dash.
      std::string block;
      Emit(*item, indent + 2, &block);
      absl::StrAppend(out, margin, "- ", block.substr(margin.size() + 2));
    } else {
      absl::StrAppend(out, margin, "-");
      EmitAfterKey(*item, indent + 2, out);
    }
  }
}

}  // namespace

YamlValue YamlValue::Get(std::string_view key) const {
  if (is_mapping()) {
    const auto field = std::ranges::find(node_->fields, key, &YamlField::key);
    if (field != node_->fields.end()) return {field->value, field->line};
  }
  return {nullptr, line_};
}

YamlValue YamlValue::At(std::string_view path) const {
  YamlValue value = *this;
  for (const std::string_view key : Split(path, '.')) value = value.Get(key);
  return value;
}

const std::string& YamlValue::Text() const {
  static const std::string* none = new std::string;
  return is_scalar() ? node_->text : *none;
}

std::vector<YamlValue> YamlValue::Items() const {
  std::vector<YamlValue> items;
  if (!is_sequence()) return items;
  items.reserve(node_->items.size());
  for (const YamlNode* item : node_->items) items.emplace_back(item, item->line);
  return items;
}

const std::vector<YamlField>& YamlValue::Fields() const {
  static const auto* none = new std::vector<YamlField>;
  return is_mapping() ? node_->fields : *none;
}

YamlFile ParseYaml(std::string_view text) {
  YamlFile file;
  try {
    Parse(text, &file);
  } catch (YamlError& error) {
    file.error = std::move(error);
  }
  return file;
}

std::string EmitYaml(const YamlValue& value, int indent) {
  std::string out;
  if (value.node() == nullptr) return out;
  if (value.is_mapping() || value.is_sequence()) {
    Emit(*value.node(), indent, &out);
  } else {
    out = std::string(static_cast<size_t>(indent), ' ') + ScalarText(*value.node()) + "\n";
  }
  return out;
}

}  // namespace muster::yaml
