// libibverbs.so.1 and libefa.so.1 of a node with EFA devices, for libfabric and aws-ofi-nccl to
// start on where there are none. Nothing is ever sent or received.
//
//   MADE_UP_EFA=FOLDER    a device for each entry of FOLDER/class/infiniband, which is as in sysfs
//   MADE_UP_EFA_WRITE=1   they do RDMA writes as p5's; otherwise only reads, as p4d's
//
// The types are rdma-core's (libibverbs/verbs.h and providers/efa/efadv.h, 44 to 56).
#include <dirent.h>
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#undef ibv_query_port
#undef ibv_reg_mr

namespace {

// EFADV_DEVICE_ATTR_CAPS_* of newer headers than Debian 12's.
constexpr uint32_t kRdmaRead = 1U << 0;
constexpr uint32_t kRnrRetry = 1U << 1;
constexpr uint32_t kRdmaWrite = 1U << 3;
constexpr uint32_t kAmazon = 0x1d0f;
constexpr uint32_t kMtu = 8928;

// Each returns success, zero or nothing.
template <typename Result, typename... Arguments>
Result Nothing(Arguments... /*arguments*/) {
  return Result();
}

int NoCompletion(ibv_cq_ex* /*queue*/, ibv_poll_cq_attr* /*attributes*/) { return ENOENT; }
int NoNextCompletion(ibv_cq_ex* /*queue*/) { return ENOENT; }
int NoWork(ibv_qp* /*pair*/, ibv_recv_wr* /*work*/, ibv_recv_wr** /*bad*/) { return 0; }
int NoCompletions(ibv_cq* /*queue*/, int /*entries*/, ibv_wc* /*completions*/) { return 0; }

int QueryPort(ibv_context* /*context*/, uint8_t /*port*/, ibv_port_attr* attributes, size_t size) {
  ibv_port_attr port = {};
  port.state = IBV_PORT_ACTIVE;
  port.max_mtu = port.active_mtu = IBV_MTU_4096;
  port.gid_tbl_len = 1;
  port.max_msg_sz = kMtu;
  port.active_width = 2;   // 4X
  port.active_speed = 32;  // EDR: 100 Gbit/s in all
  port.link_layer = IBV_LINK_LAYER_UNSPECIFIED;
  std::memcpy(attributes, &port, std::min(size, sizeof port));
  return 0;
}

ibv_cq_ex* MakeQueue(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
  auto* queue = new ibv_cq_ex();
  queue->context = context;
  queue->channel = attributes->channel;
  queue->cq_context = attributes->cq_context;
  queue->cqe = static_cast<int>(attributes->cqe);
  queue->start_poll = NoCompletion;
  queue->next_poll = NoNextCompletion;
  queue->end_poll = Nothing;
  queue->read_opcode = [](ibv_cq_ex*) { return IBV_WC_SEND; };
  queue->read_vendor_err = queue->read_byte_len = queue->read_qp_num = Nothing;
  queue->read_src_qp = queue->read_slid = Nothing;
  queue->read_wc_flags = Nothing;
  queue->read_imm_data = Nothing;
  return queue;
}

ibv_qp* MakePair(ibv_context* context, ibv_qp_init_attr_ex* attributes) {
  static uint32_t number = 0;
  auto* pair = new ibv_qp_ex();
  pair->qp_base.context = context;
  pair->qp_base.qp_context = attributes->qp_context;
  pair->qp_base.pd = attributes->pd;
  pair->qp_base.send_cq = attributes->send_cq;
  pair->qp_base.recv_cq = attributes->recv_cq;
  pair->qp_base.qp_num = ++number;
  pair->qp_base.qp_type = attributes->qp_type;
  pair->wr_rdma_read = pair->wr_rdma_write = Nothing;
  pair->wr_rdma_write_imm = Nothing;
  pair->wr_send = pair->wr_start = pair->wr_abort = Nothing;
  pair->wr_send_imm = Nothing;
  pair->wr_set_ud_addr = Nothing;
  pair->wr_set_inline_data_list = Nothing;
  pair->wr_set_sge_list = Nothing;
  pair->wr_complete = Nothing;
  return &pair->qp_base;
}

ibv_mr* Register(ibv_pd* domain, void* address, size_t length) {
  static uint32_t key = 0;
  auto* region = new ibv_mr();
  region->context = domain->context;
  region->pd = domain;
  region->addr = address;
  region->length = length;
  region->lkey = region->rkey = ++key;
  return region;
}

std::vector<std::string> DeviceNames(const std::string& folder) {
  std::vector<std::string> names;
  DIR* entries = opendir((folder + "/class/infiniband").c_str());
  while (const dirent* entry = entries == nullptr ? nullptr : readdir(entries)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  if (entries != nullptr) closedir(entries);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  const char* given = std::getenv("MADE_UP_EFA");
  const std::string folder = given == nullptr ? "" : given;
  const std::vector<std::string> names =
      folder.empty() ? std::vector<std::string>() : DeviceNames(folder);
  auto** list = new ibv_device*[names.size() + 1]();
  for (size_t i = 0; i < names.size(); ++i) {
    list[i] = new ibv_device();
    list[i]->node_type = IBV_NODE_UNSPECIFIED;
    list[i]->transport_type = IBV_TRANSPORT_UNSPECIFIED;
    std::snprintf(list[i]->name, sizeof list[i]->name, "%s", names[i].c_str());
    std::snprintf(list[i]->dev_name, sizeof list[i]->dev_name, "uverbs%zu", i);
    std::snprintf(list[i]->ibdev_path, sizeof list[i]->ibdev_path, "%s/class/infiniband/%s",
                  folder.c_str(), names[i].c_str());
  }
  if (count != nullptr) *count = static_cast<int>(names.size());
  return list;
}
// Devices stay: contexts name them.
void ibv_free_device_list(ibv_device** list) { delete[] list; }
const char* ibv_get_device_name(ibv_device* device) { return device->name; }

ibv_context* ibv_open_device(ibv_device* device) {
  auto* context = new verbs_context();
  context->sz = sizeof *context;
  context->query_port = QueryPort;
  context->create_cq_ex = MakeQueue;
  context->create_qp_ex = MakePair;
  context->context.device = device;
  context->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  context->context.cmd_fd = context->context.async_fd = -1;
  context->context.num_comp_vectors = 1;
  context->context.ops.post_recv = NoWork;
  context->context.ops.poll_cq = NoCompletions;
  return &context->context;
}
int ibv_close_device(ibv_context* context) {
  delete verbs_get_ctx(context);
  return 0;
}

int ibv_query_device(ibv_context* /*context*/, ibv_device_attr* attributes) {
  *attributes = {};
  std::snprintf(attributes->fw_ver, sizeof attributes->fw_ver, "0.0.0.0");
  attributes->max_mr_size = ~0ULL;
  attributes->vendor_id = kAmazon;
  attributes->vendor_part_id = std::getenv("MADE_UP_EFA_WRITE") == nullptr ? 0xefa0 : 0xefa1;
  attributes->max_qp = 256;
  attributes->max_qp_wr = 4096;
  attributes->max_sge = 2;
  attributes->max_cq = 512;
  attributes->max_cqe = 32768;
  attributes->max_mr = 1 << 18;
  attributes->max_pd = 256;
  attributes->max_ah = 8192;
  attributes->phys_port_cnt = 1;
  return 0;
}
int ibv_query_port(ibv_context* context, uint8_t port, struct _compat_ibv_port_attr* attributes) {
  return QueryPort(context, port, reinterpret_cast<ibv_port_attr*>(attributes),
                   offsetof(ibv_port_attr, port_cap_flags2));
}
int ibv_query_gid(ibv_context* context, uint8_t /*port*/, int /*index*/, ibv_gid* gid) {
  // A link-local address that differs from device to device.
  *gid = {};
  gid->raw[0] = 0xfe;
  gid->raw[1] = 0x80;
  gid->raw[15] = static_cast<uint8_t>(1 + std::atoi(context->device->dev_name + 6));
  return 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  auto* domain = new ibv_pd();
  domain->context = context;
  return domain;
}
int ibv_dealloc_pd(ibv_pd* domain) {
  delete domain;
  return 0;
}
ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, size_t length, int /*access*/) {
  return Register(domain, address, length);
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* address, size_t length, uint64_t /*iova*/,
                         unsigned int /*access*/) {
  return Register(domain, address, length);
}
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* domain, uint64_t /*offset*/, size_t length, uint64_t iova,
                          int /*file*/, int /*access*/) {
  return Register(domain, reinterpret_cast<void*>(iova), length);
}
int ibv_dereg_mr(ibv_mr* region) {
  delete region;
  return 0;
}
int ibv_destroy_cq(ibv_cq* queue) {
  delete reinterpret_cast<ibv_cq_ex*>(queue);
  return 0;
}
ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* pair) { return reinterpret_cast<ibv_qp_ex*>(pair); }
int ibv_modify_qp(ibv_qp* /*pair*/, ibv_qp_attr* /*attributes*/, int /*mask*/) { return 0; }
int ibv_destroy_qp(ibv_qp* pair) {
  delete reinterpret_cast<ibv_qp_ex*>(pair);
  return 0;
}
// In whole, and of each 128 bytes.
int ibv_query_qp_data_in_order(ibv_qp* /*pair*/, ibv_wr_opcode /*operation*/, uint32_t /*flags*/) {
  return 3;
}
ibv_ah* ibv_create_ah(ibv_pd* domain, ibv_ah_attr* /*attributes*/) {
  auto* handle = new ibv_ah();
  handle->context = domain->context;
  handle->pd = domain;
  return handle;
}
int ibv_destroy_ah(ibv_ah* handle) {
  delete handle;
  return 0;
}
int ibv_fork_init() { return 0; }
ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }
const char* ibv_wc_status_str(ibv_wc_status /*status*/) { return "made up"; }

int efadv_query_device(ibv_context* /*context*/, efadv_device_attr* attributes, uint32_t size) {
  // The last two came later; a caller that knows less has a smaller one.
  struct {
    uint64_t comp_mask = 0;
    uint32_t max_sq_wr = 4096;
    uint32_t max_rq_wr = 32768;
    uint16_t max_sq_sge = 2;
    uint16_t max_rq_sge = 2;
    uint16_t inline_buf_size = 32;
    uint8_t reserved[2] = {};
    uint32_t device_caps = kRdmaRead | kRnrRetry;
    uint32_t max_rdma_size = 1U << 30;
  } told;
  if (std::getenv("MADE_UP_EFA_WRITE") != nullptr) told.device_caps |= kRdmaWrite;
  std::memcpy(attributes, &told, std::min<size_t>(size, sizeof told));
  return 0;
}
ibv_qp* efadv_create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes,
                           efadv_qp_init_attr* /*of_efa*/, uint32_t /*size*/) {
  return MakePair(context, attributes);
}
ibv_cq_ex* efadv_create_cq(ibv_context* context, ibv_cq_init_attr_ex* attributes,
                           efadv_cq_init_attr* /*of_efa*/, uint32_t /*size*/) {
  return MakeQueue(context, attributes);
}
efadv_cq* efadv_cq_from_ibv_cq_ex(ibv_cq_ex* /*queue*/) {
  static efadv_cq queue = {};
  return &queue;
}
int efadv_query_ah(ibv_ah* /*handle*/, efadv_ah_attr* attributes, uint32_t /*size*/) {
  attributes->comp_mask = 0;
  attributes->ahn = 1;
  return 0;
}
int efadv_query_mr(ibv_mr* /*region*/, struct efadv_mr_attr* /*attributes*/, uint32_t /*size*/) {
  return ENOTSUP;
}

}  // extern "C"
