// run cpu: pack
// All products read x as float32, the last one in 8 bits; weights of 4 bits have a packing of their own.
func.func @main(%x: f16[n, 64]) -> (f16[n, 40], f16[n, 40], f16[n, 40]) attributes {heddle.symbols = {n = [1, 9]}} {
  %w = weight() {name = "w"} : () -> i8[40, 64]
  %v = weight() {name = "v"} : () -> ui8[40, 32]
  %s = weight() {name = "s"} : () -> f16[40, 2]
  %y = quantized_matmul(%x, %w, %s) {activations = "float", bits = 8 : i64, group = 32 : i64} : (f16[n, 64], i8[40, 64], f16[40, 2]) -> f16[n, 40]
  %z = quantized_matmul(%x, %v, %s) {activations = "float", bits = 4 : i64, group = 32 : i64} : (f16[n, 64], ui8[40, 32], f16[40, 2]) -> f16[n, 40]
  %t = quantized_matmul(%x, %v, %s) {activations = "int8", bits = 4 : i64, group = 32 : i64} : (f16[n, 64], ui8[40, 32], f16[40, 2]) -> f16[n, 40]
  return %y, %z, %t : f16[n, 40], f16[n, 40], f16[n, 40]
}

// gives
module {
  func.func @main(%arg0: f16[n, 64]) -> (f16[n, 40], f16[n, 40], f16[n, 40]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = weight() {name = "w"} : () -> i8[40, 64]
    %1 = weight() {name = "v"} : () -> ui8[40, 32]
    %2 = weight() {name = "s"} : () -> f16[40, 2]
    %3 = cast(%arg0) {dtype = f32} : (f16[n, 64]) -> f32[n, 64]
    %4 = pack_b(%0) {group = 4 : i64, transposed = true} : (i8[40, 64]) -> i8[2, 16, 32, 4]
    %5 = pack_b(%2) {group = 1 : i64, transposed = true} : (f16[40, 2]) -> f16[2, 2, 32]
    %6 = quantized_matmul_packed(%3, %4, %5) {columns = "40", dtype = f16, group = 32 : i64} : (f32[n, 64], i8[2, 16, 32, 4], f16[2, 2, 32]) -> f16[n, 40]
    %7 = pack_int4(%1) : (ui8[40, 32]) -> ui32[2, 8, 32]
    %8 = quantized_matmul_packed(%3, %7, %5) {columns = "40", dtype = f16, group = 32 : i64} : (f32[n, 64], ui32[2, 8, 32], f16[2, 2, 32]) -> f16[n, 40]
    %9 = round_rows(%3) {bits = 4 : i64, group = 32 : i64} : (f32[n, 64]) -> ui8[n, 80]
    %10 = rounded_matmul_packed(%9, %7, %5) {columns = "40", dtype = f16, group = 32 : i64} : (ui8[n, 80], ui32[2, 8, 32], f16[2, 2, 32]) -> f16[n, 40]
    return %6, %8, %10 : f16[n, 40], f16[n, 40], f16[n, 40]
  }
}
