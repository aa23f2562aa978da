// run cpu: pack
// Products by right sides that are not packed: small ones, of few columns along k, and those of a
// transposed left side, which is read as it lies, or turned as a whole for few columns. Weights that
// fill their panels, and those beside others of their left side, are.
func.func @main(%x: f32[n, 64], %y: f32[48, 64], %z: f32[64, 40], %t: f32[512, 100], %u: f32[512, 3], %v: f32[64, 48]) -> (f32[n, 8], f32[48, 24], f32[48, 24], f32[n, 24], f32[n, 9], f32[48, 40], f32[100, 3], f32[48, 40]) attributes {heddle.symbols = {n = [1, 9]}} {
  %few = weight() {name = "few"} : () -> f32[64, 8]
  %narrow = weight() {name = "narrow"} : () -> f32[24, 64]
  %other = weight() {name = "other"} : () -> f32[64, 9]
  %0 = matmul(%x, %few) {precision = "full"} : (f32[n, 64], f32[64, 8]) -> f32[n, 8]
  %1 = transpose(%narrow) {permutation = array<i64: 1, 0>} : (f32[24, 64]) -> f32[64, 24]
  %2 = relu(%y) : (f32[48, 64]) -> f32[48, 64]
  %3 = matmul(%2, %1) {precision = "full"} : (f32[48, 64], f32[64, 24]) -> f32[48, 24]
  %4 = exp(%3) : (f32[48, 24]) -> f32[48, 24]
  %5 = relu(%x) : (f32[n, 64]) -> f32[n, 64]
  %6 = matmul(%5, %1) {precision = "full"} : (f32[n, 64], f32[64, 24]) -> f32[n, 24]
  %7 = matmul(%5, %other) {precision = "full"} : (f32[n, 64], f32[64, 9]) -> f32[n, 9]
  %8 = matmul(%y, %z) {precision = "full"} : (f32[48, 64], f32[64, 40]) -> f32[48, 40]
  %9 = transpose(%t) {permutation = array<i64: 1, 0>} : (f32[512, 100]) -> f32[100, 512]
  %10 = matmul(%9, %u) {precision = "full"} : (f32[100, 512], f32[512, 3]) -> f32[100, 3]
  %11 = transpose(%v) {permutation = array<i64: 1, 0>} : (f32[64, 48]) -> f32[48, 64]
  %12 = matmul(%11, %z) {precision = "full"} : (f32[48, 64], f32[64, 40]) -> f32[48, 40]
  return %0, %3, %4, %6, %7, %8, %10, %12 : f32[n, 8], f32[48, 24], f32[48, 24], f32[n, 24], f32[n, 9], f32[48, 40], f32[100, 3], f32[48, 40]
}
// gives
module {
  func.func @main(%arg0: f32[n, 64], %arg1: f32[48, 64], %arg2: f32[64, 40], %arg3: f32[512, 100], %arg4: f32[512, 3], %arg5: f32[64, 48]) -> (f32[n, 8], f32[48, 24], f32[48, 24], f32[n, 24], f32[n, 9], f32[48, 40], f32[100, 3], f32[48, 40]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = weight() {name = "few"} : () -> f32[64, 8]
    %1 = weight() {name = "narrow"} : () -> f32[24, 64]
    %2 = weight() {name = "other"} : () -> f32[64, 9]
    %3 = transpose(%0) {permutation = array<i64: 1, 0>} : (f32[64, 8]) -> f32[8, 64]
    %4 = transpose(%3) {permutation = array<i64: 1, 0>} : (f32[8, 64]) -> f32[64, 8]
    %5 = matmul(%arg0, %4) {precision = "full"} : (f32[n, 64], f32[64, 8]) -> f32[n, 8]
    %6 = transpose(%1) {permutation = array<i64: 1, 0>} : (f32[24, 64]) -> f32[64, 24]
    %7 = relu(%arg1) : (f32[48, 64]) -> f32[48, 64]
    %8 = reshape(%6) {shape = ["64", "24"]} : (f32[64, 24]) -> f32[64, 24]
    %9 = matmul(%7, %8) {precision = "full"} : (f32[48, 64], f32[64, 24]) -> f32[48, 24]
    %10 = exp(%9) : (f32[48, 24]) -> f32[48, 24]
    %11 = relu(%arg0) : (f32[n, 64]) -> f32[n, 64]
    %12 = pack_b(%1) {group = 1 : i64, transposed = true} : (f32[24, 64]) -> f32[1, 64, 32]
    %13 = matmul_packed(%11, %12) {columns = "24"} : (f32[n, 64], f32[1, 64, 32]) -> f32[n, 24]
    %14 = pack_b(%2) {group = 1 : i64, transposed = false} : (f32[64, 9]) -> f32[1, 64, 32]
    %15 = matmul_packed(%11, %14) {columns = "9"} : (f32[n, 64], f32[1, 64, 32]) -> f32[n, 9]
    %16 = matmul(%arg1, %arg2) {precision = "full"} : (f32[48, 64], f32[64, 40]) -> f32[48, 40]
    %17 = transpose(%arg4) {permutation = array<i64: 1, 0>} : (f32[512, 3]) -> f32[3, 512]
    %18 = matmul(%17, %arg3) {precision = "full"} : (f32[3, 512], f32[512, 100]) -> f32[3, 100]
    %19 = transpose(%18) {permutation = array<i64: 1, 0>} : (f32[3, 100]) -> f32[100, 3]
    %20 = turned_matmul(%arg5, %arg2) : (f32[64, 48], f32[64, 40]) -> f32[48, 40]
    return %5, %9, %10, %13, %15, %16, %19, %20 : f32[n, 8], f32[48, 24], f32[48, 24], f32[n, 24], f32[n, 9], f32[48, 40], f32[100, 3], f32[48, 40]
  }
}
