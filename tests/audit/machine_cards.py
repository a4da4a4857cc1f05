"""Network cards as `tests.audit.machine` draws them."""

from __future__ import annotations

from typing import NamedTuple


class Card(NamedTuple):
    """A network card's PCI identity and driver."""

    ids: str
    driver: str
    model: str
    board: str = ""
    firmware: str = ""
    speed: str = "32.0 GT/s PCIe"
    width: str = "16"


CARDS = {
    "cx7": Card("15b3:1021", "mlx5_core", "Mellanox Technologies MT2910 Family [ConnectX-7]",
                "MT_0000000838", "28.39.1002"),
    "cx8": Card("15b3:1023", "mlx5_core", "Mellanox Technologies CX8 Family [ConnectX-8]",
                "MT_0000001127", "40.44.1036", "64.0 GT/s PCIe"),
    "cx6": Card("15b3:101b", "mlx5_core", "Mellanox Technologies MT28908 Family [ConnectX-6]",
                "MT_0000000223", "20.39.1002", "16.0 GT/s PCIe"),
    "cx6dx": Card("15b3:101d", "mlx5_core", "Mellanox Technologies MT2892 Family [ConnectX-6 Dx]",
                  "MT_0000000359", "22.39.1002", "16.0 GT/s PCIe"),
    "cx5-vf": Card("15b3:101a", "mlx5_core", "Mellanox Technologies MT28800 Family [ConnectX-5 Ex "
                   "Virtual Function]", "MSF0010110035", "16.30.1210", "8.0 GT/s PCIe", "0"),
    "cx7-vf": Card("15b3:101e", "mlx5_core", "Mellanox Technologies ConnectX Family mlx5Gen "
                   "Virtual Function", "MT_0000000838", "28.39.1002", "32.0 GT/s PCIe", "0"),
    "bf3": Card("15b3:a2dc", "mlx5_core", "Mellanox Technologies MT43244 BlueField-3 integrated "
                "ConnectX-7", "MT_0000000884", "32.39.2048"),
    "thor2": Card("14e4:1760", "bnxt_en", "Broadcom Inc. BCM57608 25Gb/50Gb/100Gb/200Gb/400Gb",
                  "", "230.2.54.0"),
    "pollara": Card("1dd8:1002", "ionic", "Pensando Systems DSC Ethernet Controller", "",
                    "1.110.0-a-79"),
    "e810": Card("8086:1592", "ice", "Intel Corporation Ethernet Controller E810-C for QSFP",
                 "", "1.67", "16.0 GT/s PCIe"),
    "x550": Card("8086:1563", "ixgbe", "Intel Corporation Ethernet Controller X550", "", "",
                 "8.0 GT/s PCIe", "4"),
    "i350": Card("8086:1521", "igb", "Intel Corporation I350 Gigabit Network Connection", "", "",
                 "5.0 GT/s PCIe", "4"),
    "ena": Card("1d0f:ec20", "ena", "Amazon.com, Inc. Elastic Network Adapter (ENA)", "", "",
                "", ""),
    "efa": Card("1d0f:efa2", "efa", "Amazon.com, Inc. Elastic Fabric Adapter (EFA)", "", "",
                "", ""),
    "gvnic": Card("1ae0:0042", "gve", "Google, Inc. Compute Engine Virtual Ethernet [gVNIC]", "",
                  "", "", ""),
    "virtio": Card("1af4:1041", "virtio_net", "Red Hat, Inc. Virtio 1.0 network device", "", "",
                   "", ""),
    "mana": Card("1414:00ba", "mana", "Microsoft Corporation Microsoft Azure Network Adapter VF",
                 "", "", "", ""),
    "gaudi-nic": Card("1da3:1063", "habanalabs", "Habana Labs Ltd. HL-325L", "", "", "", ""),
}  # fmt: skip
