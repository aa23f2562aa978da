// run cpu: pack
// A right side that is not known before is read as it lies; a weight is packed.
func.func @main(%x: bf16[heads, 1, 4], %keys: bf16[heads, n, 4], %y: f32[1, 4], %b: f32[4, n]) -> (bf16[heads, 1, n], f32[1, n], f32[1, 40]) attributes {heddle.symbols = {heads = [1, 9], n = [1, 9]}} {
  %t = transpose(%keys) {permutation = array<i64: 0, 2, 1>} : (bf16[heads, n, 4]) -> bf16[heads, 4, n]
  %scores = matmul(%x, %t) {precision = "full"} : (bf16[heads, 1, 4], bf16[heads, 4, n]) -> bf16[heads, 1, n]
  %row = matmul(%y, %b) {precision = "full"} : (f32[1, 4], f32[4, n]) -> f32[1, n]
  %w = weight() {name = "w"} : () -> f32[4, 40]
  %known = matmul(%y, %w) {precision = "full"} : (f32[1, 4], f32[4, 40]) -> f32[1, 40]
  return %scores, %row, %known : bf16[heads, 1, n], f32[1, n], f32[1, 40]
}

// gives
module {
  func.func @main(%arg0: bf16[heads, 1, 4], %arg1: bf16[heads, n, 4], %arg2: f32[1, 4], %arg3: f32[4, n]) -> (bf16[heads, 1, n], f32[1, n], f32[1, 40]) attributes {heddle.symbols = {heads = [1, 9], n = [1, 9]}} {
    %0 = cast(%arg0) {dtype = f32} : (bf16[heads, 1, 4]) -> f32[heads, 1, 4]
    %1 = cast(%arg1) {dtype = f32} : (bf16[heads, n, 4]) -> f32[heads, n, 4]
    %2 = mul(%0, %1) : (f32[heads, 1, 4], f32[heads, n, 4]) -> f32[heads, n, 4]
    %3 = sum(%2) {axis = 2 : i64} : (f32[heads, n, 4]) -> f32[heads, n, 1]
    %4 = reshape(%3) {shape = ["heads", "1", "n"]} : (f32[heads, n, 1]) -> f32[heads, 1, n]
    %5 = cast(%4) {dtype = bf16} : (f32[heads, 1, n]) -> bf16[heads, 1, n]
    %6 = reshape(%arg2) {shape = ["4", "1"]} : (f32[1, 4]) -> f32[4, 1]
    %7 = mul(%6, %arg3) : (f32[4, 1], f32[4, n]) -> f32[4, n]
    %8 = sum(%7) {axis = 0 : i64} : (f32[4, n]) -> f32[1, n]
    %9 = weight() {name = "w"} : () -> f32[4, 40]
    %10 = pack_b(%9) {group = 1 : i64, transposed = false} : (f32[4, 40]) -> f32[2, 4, 32]
    %11 = matmul_packed(%arg2, %10) {columns = "40"} : (f32[1, 4], f32[2, 4, 32]) -> f32[1, 40]
    return %5, %8, %11 : bf16[heads, 1, n], f32[1, n], f32[1, 40]
  }
}
