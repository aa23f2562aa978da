// run cpu: legalize
// One column is a sum of products, in float32 at least; not beside another product of its left side.
func.func @main(%a: f32[5, n, 4], %b: f32[4, 1], %c: bf16[n, 3, 4], %d: bf16[n, 4, 1], %e: f32[4, 9], %f: f32[n, 4]) -> (f32[5, n, 1], bf16[n, 3, 1], f32[n, 1], f32[n, 9]) attributes {heddle.symbols = {n = [1, 9]}} {
  %p = matmul(%a, %b) {precision = "full"} : (f32[5, n, 4], f32[4, 1]) -> f32[5, n, 1]
  %q = matmul(%c, %d) {precision = "full"} : (bf16[n, 3, 4], bf16[n, 4, 1]) -> bf16[n, 3, 1]
  %r = matmul(%f, %b) {precision = "full"} : (f32[n, 4], f32[4, 1]) -> f32[n, 1]
  %s = matmul(%f, %e) {precision = "full"} : (f32[n, 4], f32[4, 9]) -> f32[n, 9]
  return %p, %q, %r, %s : f32[5, n, 1], bf16[n, 3, 1], f32[n, 1], f32[n, 9]
}

// gives
module {
  func.func @main(%arg0: f32[5, n, 4], %arg1: f32[4, 1], %arg2: bf16[n, 3, 4], %arg3: bf16[n, 4, 1], %arg4: f32[4, 9], %arg5: f32[n, 4]) -> (f32[5, n, 1], bf16[n, 3, 1], f32[n, 1], f32[n, 9]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = reshape(%arg1) {shape = ["1", "4"]} : (f32[4, 1]) -> f32[1, 4]
    %1 = mul(%arg0, %0) : (f32[5, n, 4], f32[1, 4]) -> f32[5, n, 4]
    %2 = sum(%1) {axis = 2 : i64} : (f32[5, n, 4]) -> f32[5, n, 1]
    %3 = reshape(%arg3) {shape = ["n", "1", "4"]} : (bf16[n, 4, 1]) -> bf16[n, 1, 4]
    %4 = cast(%arg2) {dtype = f32} : (bf16[n, 3, 4]) -> f32[n, 3, 4]
    %5 = cast(%3) {dtype = f32} : (bf16[n, 1, 4]) -> f32[n, 1, 4]
    %6 = mul(%4, %5) : (f32[n, 3, 4], f32[n, 1, 4]) -> f32[n, 3, 4]
    %7 = sum(%6) {axis = 2 : i64} : (f32[n, 3, 4]) -> f32[n, 3, 1]
    %8 = cast(%7) {dtype = bf16} : (f32[n, 3, 1]) -> bf16[n, 3, 1]
    %9 = matmul(%arg5, %arg1) {precision = "full"} : (f32[n, 4], f32[4, 1]) -> f32[n, 1]
    %10 = matmul(%arg5, %arg4) {precision = "full"} : (f32[n, 4], f32[4, 9]) -> f32[n, 9]
    return %2, %8, %9, %10 : f32[5, n, 1], bf16[n, 3, 1], f32[n, 1], f32[n, 9]
  }
}
