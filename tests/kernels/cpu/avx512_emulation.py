"""AVX-512 on a CPU that lacks it: in the LLVM IR that ships, its instructions become functions.

Only those are here that LLVM has no other instructions for; vectors of 512 bits it cuts by itself.
A bfloat16 becomes an integer of 16 bits, so that IR that does more with it than round to it is
refused. Which NaN an instruction returns is left open.

Long because each instruction is written out.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual (SDM), volume 2, the page of
each instruction.
"""

import math
import re
import struct

from heddle.kernels.registry import Machine


def _number(value: float) -> str:
    """A number as LLVM IR writes it."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _vpdpbusd(name: str) -> str:
    """VPDPBUSD: four products of unsigned by signed bytes are added, modulo 2**32."""
    head = f"<16 x i32> @{name}(<16 x i32> %sum, <64 x i8> %a, <64 x i8> %b)"
    return _sums_of_products(head, "lshr", 8, "%sum")


def _vpmaddwd(name: str) -> str:
    """VPMADDWD: the sum of two products of signed words, modulo 2**32."""
    head = f"<16 x i32> @{name}(<32 x i16> %a, <32 x i16> %b)"
    return _sums_of_products(head, "ashr", 16, "zeroinitializer")


def _vpmaddubsw(name: str) -> str:
    """VPMADDUBSW: the sum of two products of unsigned by signed bytes, saturated to 16 bits."""
    text = f"""
define internal <32 x i16> @{name}(<64 x i8> %a, <64 x i8> %b) #512 {{"""
    for part, side in enumerate(("even", "odd")):
        order = ", ".join(f"i32 {2 * lane + part}" for lane in range(32))
        for of, extends in (("a", "zext"), ("b", "sext")):
            text += f"""
  %{of}.{side}8 = shufflevector <64 x i8> %{of}, <64 x i8> poison, <32 x i32> <{order}>
  %{of}.{side} = {extends} <32 x i8> %{of}.{side}8 to <32 x i32>"""
        text += f"\n  %{side} = mul <32 x i32> %a.{side}, %b.{side}"
    return f"""{text}
  %sum = add <32 x i32> %even, %odd
  %below = icmp slt <32 x i32> %sum, splat (i32 -32768)
  %least = select <32 x i1> %below, <32 x i32> splat (i32 -32768), <32 x i32> %sum
  %above = icmp sgt <32 x i32> %least, splat (i32 32767)
  %most = select <32 x i1> %above, <32 x i32> splat (i32 32767), <32 x i32> %least
  %result = trunc <32 x i32> %most to <32 x i16>
  ret <32 x i16> %result
}}
"""


def _sums_of_products(head: str, shift: str, bits: int, total: str) -> str:
    """`total` with the products of the elements of each 32 bits; `shift` extends those of %a."""
    text = f"""
define internal {head} #512 {{
  %left = bitcast <{512 // bits} x i{bits}> %a to <16 x i32>
  %right = bitcast <{512 // bits} x i{bits}> %b to <16 x i32>"""
    for part in range(32 // bits):
        up, down = f"splat (i32 {32 - bits * (part + 1)})", f"splat (i32 {32 - bits})"
        text += f"""
  %left{part}.up = shl <16 x i32> %left, {up}
  %right{part}.up = shl <16 x i32> %right, {up}
  %left{part} = {shift} <16 x i32> %left{part}.up, {down}
  %right{part} = ashr <16 x i32> %right{part}.up, {down}
  %product{part} = mul <16 x i32> %left{part}, %right{part}
  %sum{part} = add <16 x i32> {total}, %product{part}"""
        total = f"%sum{part}"
    return f"{text}\n  ret <16 x i32> {total}\n}}\n"


def _vfpclassps(name: str) -> str:
    """VFPCLASSPS: whether a number is denormal; others are refused (`_OTHER_OPERANDS`)."""
    return f"""
define internal <16 x i1> @{name}(<16 x float> %a, i32) #512 {{
  %bits = bitcast <16 x float> %a to <16 x i32>
  %size = and <16 x i32> %bits, splat (i32 u0x7FFFFFFF)
  %less = sub <16 x i32> %size, splat (i32 1)
  %result = icmp ult <16 x i32> %less, splat (i32 u0x7FFFFF)
  ret <16 x i1> %result
}}
"""


def _vcvtneps2bf16(name: str, lanes: int) -> str:
    """VCVTNEPS2BF16: to nearest even; a denormal becomes zero, a NaN is cut off and made quiet."""
    words = f"<{lanes} x i32>"
    return f"""
define internal <{lanes} x i16> @{name}(<{lanes} x float> %number) #512 {{
  %bits = bitcast <{lanes} x float> %number to {words}
  %size = and {words} %bits, splat (i32 u0x7FFFFFFF)
  %sign = and {words} %bits, splat (i32 u0x80000000)
  %upper = lshr {words} %bits, splat (i32 16)
  %odd = and {words} %upper, splat (i32 1)
  %half = add {words} %odd, splat (i32 u0x7FFF)
  %up = add {words} %bits, %half
  %quiet = or {words} %bits, splat (i32 u0x400000)
  %nan = icmp ugt {words} %size, splat (i32 u0x7F800000)
  %normal = select <{lanes} x i1> %nan, {words} %quiet, {words} %up
  %tiny = icmp ult {words} %size, splat (i32 u0x800000)
  %rounded = select <{lanes} x i1> %tiny, {words} %sign, {words} %normal
  %cut = lshr {words} %rounded, splat (i32 16)
  %result = trunc {words} %cut to <{lanes} x i16>
  ret <{lanes} x i16> %result
}}
"""


def _vcvtne2ps2bf16(name: str) -> str:
    """VCVTNE2PS2BF16: the same of two; the second becomes the lower half."""
    order = ", ".join(f"i32 {lane}" for lane in range(32))
    return f"""
define internal <32 x i16> @{name}(<16 x float> %high, <16 x float> %low) #512 {{
  %both = shufflevector <16 x float> %low, <16 x float> %high, <32 x i32> <{order}>
  %result = call <32 x i16> @avx512bf16.cvtneps2bf16.32(<32 x float> %both)
  ret <32 x i16> %result
}}
"""


def _vdpbf16ps(name: str) -> str:
    """VDPBF16PS: the products of odd elements are added, then those of even ones.

    Each time it is rounded to nearest even; denormals are zero, read or written.
    """
    return f"""
define internal <16 x float> @{name}(<16 x float> %c, <32 x i16> %a, <32 x i16> %b) #512 {{
  %before = bitcast <16 x float> %c to <16 x i32>
  %x = bitcast <32 x i16> %a to <16 x i32>
  %y = bitcast <32 x i16> %b to <16 x i32>
  %x.odd = and <16 x i32> %x, splat (i32 u0xFFFF0000)
  %y.odd = and <16 x i32> %y, splat (i32 u0xFFFF0000)
  %x.even = shl <16 x i32> %x, splat (i32 16)
  %y.even = shl <16 x i32> %y, splat (i32 16)
  %one = call <16 x i32> @avx512bf16.add(<16 x i32> %before, <16 x i32> %x.odd, <16 x i32> %y.odd)
  %two = call <16 x i32> @avx512bf16.add(<16 x i32> %one, <16 x i32> %x.even, <16 x i32> %y.even)
  %result = bitcast <16 x i32> %two to <16 x float>
  ret <16 x float> %result
}}
"""


# A product of two bfloat16 is exact in float64, and a sum of it and a float32 that is rounded to
# float64 and then to float32 is as if it had been rounded once. It is zero where, rounded to
# 24 bits, it is below the smallest normal number.
_ADD = f"""
define internal <16 x i32> @avx512bf16.add(<16 x i32> %c, <16 x i32> %a, <16 x i32> %b) #512 {{
  %sum = call <16 x double> @avx512bf16.normal(<16 x i32> %c)
  %x = call <16 x double> @avx512bf16.normal(<16 x i32> %a)
  %y = call <16 x double> @avx512bf16.normal(<16 x i32> %b)
  %product = fmul <16 x double> %x, %y
  %exact = fadd <16 x double> %sum, %product
  %number = fptrunc <16 x double> %exact to <16 x float>
  %bits = bitcast <16 x float> %number to <16 x i32>
  %sign = and <16 x i32> %bits, splat (i32 u0x80000000)
  %up = fmul <16 x double> %exact, splat (double {_number(2.0**100)})
  %scaled = fptrunc <16 x double> %up to <16 x float>
  %size = call <16 x float> @llvm.fabs.v16f32(<16 x float> %scaled)
  %tiny = fcmp olt <16 x float> %size, splat (float {_number(2.0 ** (100 - 126))})
  %result = select <16 x i1> %tiny, <16 x i32> %sign, <16 x i32> %bits
  ret <16 x i32> %result
}}
"""

_NORMAL = """
define internal <16 x double> @avx512bf16.normal(<16 x i32> %bits) alwaysinline {
  %size = and <16 x i32> %bits, splat (i32 u0x7FFFFFFF)
  %sign = and <16 x i32> %bits, splat (i32 u0x80000000)
  %tiny = icmp ult <16 x i32> %size, splat (i32 u0x800000)
  %kept = select <16 x i1> %tiny, <16 x i32> %sign, <16 x i32> %bits
  %number = bitcast <16 x i32> %kept to <16 x float>
  %result = fpext <16 x float> %number to <16 x double>
  ret <16 x double> %result
}
"""


def _permutation(name: str, element: str, tables: int = 1) -> str:
    """VPERMPS, VPERMW, VPERMI2W: each lane of %places is a place in one table, or in two.

    It is taken modulo the lanes that there are.
    """
    bits = {"float": 32, "i16": 16}[element]
    lanes = 512 // bits
    data, places = f"<{lanes} x {element}>", f"<{lanes} x i{bits}>"
    second = f", {data} %second" if tables == 2 else ""
    return f"""
define internal {data} @{name}({data} %first, {places} %places{second}) #512 {{
  %table = alloca [{tables} x {data}]
  %wanted = alloca {places}
  %found = alloca {data}
  store {data} %first, ptr %table
  %behind = getelementptr {data}, ptr %table, i64 {tables - 1}
  store {data} {"%second" if tables == 2 else "%first"}, ptr %behind
  %inside = and {places} %places, splat (i{bits} {tables * lanes - 1})
  store {places} %inside, ptr %wanted
  br label %each

each:
  %lane = phi i64 [ 0, %0 ], [ %next, %each ]
  %from = getelementptr i{bits}, ptr %wanted, i64 %lane
  %place = load i{bits}, ptr %from
  %entry = getelementptr {element}, ptr %table, i{bits} %place
  %value = load {element}, ptr %entry
  %to = getelementptr {element}, ptr %found, i64 %lane
  store {element} %value, ptr %to
  %next = add i64 %lane, 1
  %more = icmp ult i64 %next, {lanes}
  br i1 %more, label %each, label %done

done:
  %result = load {data}, ptr %found
  ret {data} %result
}}
"""


def _vreduce(name: str, kind: str, bits: int) -> str:
    """VREDUCEPS and VREDUCEPD: x - floor(x), rounded down; of an infinite x it is zero."""
    lanes = 512 // bits
    floats, words, mask = f"<{lanes} x {kind}>", f"<{lanes} x i{bits}>", f"<{lanes} x i1>"
    return f"""
define internal {floats} @{name}({floats} %x, i32, {floats}, i{lanes}, i32) #512 {{
  %floor = call {floats} @llvm.floor.v{lanes}f{bits}({floats} %x)
  %near = fsub {floats} %x, %floor
  %back = fadd {floats} %near, %floor
  %over = fcmp ogt {floats} %back, %x
  %unit = zext {mask} %over to {words}
  %near.bits = bitcast {floats} %near to {words}
  %down.bits = sub {words} %near.bits, %unit
  %down = bitcast {words} %down.bits to {floats}
  %whole = fcmp oeq {floats} %near, zeroinitializer
  %rest = select {mask} %whole, {floats} splat ({kind} {_number(-0.0)}), {floats} %down
  %size = call {floats} @llvm.fabs.v{lanes}f{bits}({floats} %x)
  %infinite = fcmp oeq {floats} %size, splat ({kind} {_number(math.inf)})
  %result = select {mask} %infinite, {floats} zeroinitializer, {floats} %rest
  ret {floats} %result
}}
"""


def _vscalef(name: str, kind: str, bits: int) -> str:
    """VSCALEFPS and VSCALEFPD: a 2^floor(b), rounded once.

    The power is multiplied in parts, of which only the last one can round. An infinite b makes a
    number infinite or zero, and a quiet NaN too.
    """
    lanes, mantissa = 512 // bits, {32: 23, 64: 52}[bits]
    bias = 2 ** (bits - mantissa - 2) - 1
    most = float(2 * bias + 2 * mantissa)
    floats, words, mask = f"<{lanes} x {kind}>", f"<{lanes} x i{bits}>", f"<{lanes} x i1>"
    text = f"""
define internal {floats} @{name}({floats} %a, {floats} %b, {floats}, i{lanes}, i32) #512 {{
  %floor = call {floats} @llvm.floor.v{lanes}f{bits}({floats} %b)
  %below = fcmp olt {floats} %floor, splat ({kind} {_number(most)})
  %least = select {mask} %below, {floats} %floor, {floats} splat ({kind} {_number(most)})
  %above = fcmp ogt {floats} %least, splat ({kind} {_number(-most)})
  %inside = select {mask} %above, {floats} %least, {floats} splat ({kind} {_number(-most)})
  %n0 = fptosi {floats} %inside to {words}
  %a0 = bitcast {floats} %a to {floats}"""
    up, down = ("sgt", bias, bias), ("slt", 1 - bias, 2 + mantissa - bias)
    for step, (beyond, edge, part) in enumerate((up, up, down, down)):
        text += f"""
  %far{step} = icmp {beyond} {words} %n{step}, splat (i{bits} {edge})
  %scaled{step} = fmul {floats} %a{step}, splat ({kind} {_number(2.0**part)})
  %less{step} = sub {words} %n{step}, splat (i{bits} {part})
  %a{step + 1} = select {mask} %far{step}, {floats} %scaled{step}, {floats} %a{step}
  %n{step + 1} = select {mask} %far{step}, {words} %less{step}, {words} %n{step}"""
    return f"""{text}
  %biased = add {words} %n4, splat (i{bits} {bias})
  %power.bits = shl {words} %biased, splat (i{bits} {mantissa})
  %power = bitcast {words} %power.bits to {floats}
  %finite = fmul {floats} %a4, %power
  %lowest = fcmp oeq {floats} %b, splat ({kind} {_number(-math.inf)})
  %limit = select {mask} %lowest, {floats} zeroinitializer, {floats} %b
  %product = fmul {floats} %a, %limit
  %bits = bitcast {floats} %a to {words}
  %mark = and {words} %bits, splat (i{bits} {2 ** (mantissa - 1)})
  %marked = icmp ne {words} %mark, zeroinitializer
  %nan = fcmp uno {floats} %a, %a
  %quiet = and {mask} %nan, %marked
  %size = call {floats} @llvm.fabs.v{lanes}f{bits}({floats} %b)
  %infinite = fcmp oeq {floats} %size, splat ({kind} {_number(math.inf)})
  %known = and {mask} %quiet, %infinite
  %other = select {mask} %known, {floats} %limit, {floats} %product
  %number = fcmp olt {floats} %size, splat ({kind} {_number(math.inf)})
  %result = select {mask} %number, {floats} %finite, {floats} %other
  ret {floats} %result
}}
"""


def _made(*rows) -> dict[str, str]:
    return {name: make(name, *arguments) for name, make, *arguments in rows}


V4 = _made(
    ("avx512.pmaddw.d.512", _vpmaddwd),
    ("avx512.pmaddubs.w.512", _vpmaddubsw),
    ("avx512.fpclass.ps.512", _vfpclassps),
    ("avx512.permvar.sf.512", _permutation, "float"),
    ("avx512.permvar.hi.512", _permutation, "i16"),
    ("avx512.vpermi2var.hi.512", _permutation, "i16", 2),
    ("avx512.mask.reduce.ps.512", _vreduce, "float", 32),
    ("avx512.mask.reduce.pd.512", _vreduce, "double", 64),
    ("avx512.mask.scalef.ps.512", _vscalef, "float", 32),
    ("avx512.mask.scalef.pd.512", _vscalef, "double", 64),
)
"""What x86-64-v4 has beyond x86-64-v3, by LLVM's names."""

DOTS = _made(
    ("avx512.vpdpbusd.512", _vpdpbusd),
    ("avx512bf16.dpbf16ps.512", _vdpbf16ps),
    ("avx512bf16.cvtne2ps2bf16.512", _vcvtne2ps2bf16),
)
"""What cooperlake has beyond that; VCVTNEPS2BF16 has no name, it is `fptrunc`."""

_ROUNDED = "avx512bf16.cvtneps2bf16"
_PARTS = _made(*((f"{_ROUNDED}.{lanes}", _vcvtneps2bf16, lanes) for lanes in (16, 32)))
_FUNCTIONS = V4 | DOTS | _PARTS | {"avx512bf16.add": _ADD, "avx512bf16.normal": _NORMAL}

_INTRINSIC = re.compile(r"@llvm\.x86\.(avx512[\w.]+)\(")
_CALLED = re.compile(r"@(avx512[\w.]+)\(")
_ROUNDING = re.compile(r"fptrunc <(\d+) x float> (\S+) to <\1 x bfloat>")
# `emit.opaque` of a register that the host lacks: freeze is another value to LLVM as well.
_OPAQUE = re.compile(r'call (<\d+ x \w+>) asm "", "=v,0"\(<\d+ x \w+> (\S+)\)')
_OTHER_OPERANDS = re.compile(
    r"@avx512\.mask\.(?!reduce.*, i32 9, .*, i\d+ -1, i32 4\)|scalef.*, i\d+ -1, i32 4\)).*"
    r"|@avx512\.fpclass\.ps\.512\((?!.*, i32 32\)|<16 x float> %a, i32\)).*"
)
"""A call under a mask, with another rounding, that leaves more than what is whole, or that asks for
other numbers than the denormal ones."""


def emulated(text: str, host: Machine) -> str:
    """LLVM IR without the instructions of AVX-512 that `host` lacks."""
    lacks = ({} if host.vector_bytes == 64 else V4) | ({} if host.dots else DOTS)
    if not host.dots:
        text = _ROUNDING.sub(rf"call <\1 x bfloat> @{_ROUNDED}.\1(<\1 x float> \2)", text)
        text = re.sub(r"bfloat 0xR(\w+)", lambda bits: f"i16 {int(bits[1], 16)}", text)
        text = text.replace("bfloat", "i16")
    if host.vector_bytes < 64:
        text = _OPAQUE.sub(r"freeze \1 \2", text)
    for name in sorted(set(_INTRINSIC.findall(text))):
        if name not in _FUNCTIONS:
            raise NotImplementedError(name)
        if name in lacks:
            declared = rf"^declare .*@llvm\.x86\.{re.escape(name)}\(.*\n"
            text = re.sub(declared, "", text, flags=re.MULTILINE)
            text = text.replace(f"@llvm.x86.{name}(", f"@{name}(")
    if other := _OTHER_OPERANDS.search(text):
        raise NotImplementedError(other[0])
    defined: set[str] = set()
    while called := sorted(set(_CALLED.findall(text)) - defined):
        text += "".join(_FUNCTIONS[name] for name in called)
        defined.update(called)
    # Not inline: some kernels have hundreds of them.
    return text + '\nattributes #512 = { noinline nounwind "no-builtins" }\n'
