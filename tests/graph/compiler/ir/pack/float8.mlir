// run cpu: pack
// Widened while they are multiplied where k is whole groups, by a scale of one; else before.
func.func @main(%x: f8E4M3FN[n, 32], %u: f8E5M2[n, 10]) -> (f32[n, 40], f32[n, 40]) attributes {heddle.symbols = {n = [1, 9]}} {
  %w = weight() {name = "w"} : () -> f8E4M3FN[40, 32]
  %v = weight() {name = "v"} : () -> f8E4M3FN[10, 40]
  %t = transpose(%w) {permutation = array<i64: 1, 0>} : (f8E4M3FN[40, 32]) -> f8E4M3FN[32, 40]
  %y = float8_matmul(%x, %t) : (f8E4M3FN[n, 32], f8E4M3FN[32, 40]) -> f32[n, 40]
  %z = float8_matmul(%u, %v) : (f8E5M2[n, 10], f8E4M3FN[10, 40]) -> f32[n, 40]
  return %y, %z : f32[n, 40], f32[n, 40]
}

// gives
module {
  func.func @main(%arg0: f8E4M3FN[n, 32], %arg1: f8E5M2[n, 10]) -> (f32[n, 40], f32[n, 40]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = weight() {name = "w"} : () -> f8E4M3FN[40, 32]
    %1 = weight() {name = "v"} : () -> f8E4M3FN[10, 40]
    %2 = cast(%arg0) {dtype = bf16} : (f8E4M3FN[n, 32]) -> bf16[n, 32]
    %3 = pack_b(%0) {group = 4 : i64, transposed = true} : (f8E4M3FN[40, 32]) -> f8E4M3FN[2, 8, 32, 4]
    %4 = constant() {value = dense<1.000000e+00> : tensor<f32>} : () -> f32[]
    %5 = broadcast_to(%4) {shape = ["2", "1", "32"]} : (f32[]) -> f32[2, 1, 32]
    %6 = quantized_matmul_packed(%2, %3, %5) {columns = "40", dtype = f32, group = 32 : i64} : (bf16[n, 32], f8E4M3FN[2, 8, 32, 4], f32[2, 1, 32]) -> f32[n, 40]
    %7 = cast(%arg1) {dtype = bf16} : (f8E5M2[n, 10]) -> bf16[n, 10]
    %8 = cast(%1) {dtype = bf16} : (f8E4M3FN[10, 40]) -> bf16[10, 40]
    %9 = pack_b(%8) {group = 2 : i64, transposed = false} : (bf16[10, 40]) -> bf16[2, 5, 32, 2]
    %10 = matmul_packed(%7, %9) {columns = "40"} : (bf16[n, 10], bf16[2, 5, 32, 2]) -> bf16[n, 40]
    %11 = cast(%10) {dtype = f32} : (bf16[n, 40]) -> f32[n, 40]
    return %6, %11 : f32[n, 40], f32[n, 40]
  }
}
