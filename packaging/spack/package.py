# A recipe for Spack. In a repository of your own: packages/heddle/package.py (https://spack.readthedocs.io/en/latest/repositories.html).
from spack.package import *


class Heddle(CMakePackage):
    """Communication for programs in which every thread communicates: one-sided operations, active and tagged
    messages, persistent collectives, OpenSHMEM, over shared memory, UCX, libfabric,
    verbs and Tofu."""

    homepage = "https://heddle.invalid"
    git = "https://heddle.invalid/heddle.git"

    license("BSD-3-Clause")

    version("main", branch="main")
    version("0.2.0", tag="v0.2.0")

    variant("shmem", default=True, description="OpenSHMEM 1.5")
    variant("ucx", default=True, description="The transport over UCX")
    variant("ofi", default=True, description="The transport over libfabric")
    variant("verbs", default=True, description="The transport by InfiniBand and RoCE adapters")
    variant("pmix", default=True, description="Jobs of mpirun, prterun and srun")
    variant("hwloc", default=True, description="The machine's topology")
    variant("usdt", default=False, description="Static probes for bpftrace and perf, by the system's <sys/sdt.h>")
    variant("emulator", default=False, description="The uTofu interface in software")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("cli11", type="build")
    depends_on("protozero", type="build")
    depends_on("nlohmann-json@3", type="build")
    depends_on("python@3.9:", type="build", when="+shmem")
    # Opened at run time; headers at build time.
    depends_on("ucx@1.13:", when="+ucx")
    depends_on("libfabric@1.17:", when="+ofi")
    depends_on("rdma-core", when="+verbs")
    depends_on("pmix@4:", when="+pmix")
    depends_on("hwloc@2", when="+hwloc")

    conflicts("%gcc@:11", msg="Heddle is C++20: GCC 12 or later")
    requires("platform=linux")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define("HEDDLE_TESTS", False),
            self.define("HEDDLE_EXAMPLES", False),
            self.define("HEDDLE_BENCH", True),
            self.define_from_variant("HEDDLE_SHMEM", "shmem"),
            self.define_from_variant("HEDDLE_EMULATOR", "emulator"),
            self.define("HEDDLE_UCX", "ON" if self.spec.satisfies("+ucx") else "OFF"),
            self.define("HEDDLE_OFI", "ON" if self.spec.satisfies("+ofi") else "OFF"),
            self.define("HEDDLE_VERBS", "ON" if self.spec.satisfies("+verbs") else "OFF"),
            self.define_from_variant("HEDDLE_PMIX", "pmix"),
            self.define_from_variant("HEDDLE_USDT", "usdt"),
            self.define_from_variant("HEDDLE_HWLOC", "hwloc"),
        ]

    def setup_run_environment(self, env):
        # what is opened at run time is found by its name
        for name, package in (("ucx", "ucx"), ("ofi", "libfabric"), ("verbs", "rdma-core"), ("pmix", "pmix"), ("hwloc", "hwloc")):
            if self.spec.satisfies(f"+{name}"):
                env.prepend_path("LD_LIBRARY_PATH", self.spec[package].libs.directories[0])
