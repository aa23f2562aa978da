// run cpu: canonicalize
// A triangle as an exporter draws it: ones where a position is not behind another, then a number
// where that is zero. Places that count up from 0 are never counted from the end.
func.func @main(%table: f32[512, 8], %x: f32[s]) -> (f32[s, s], f32[s, 8], bf16[s, s]) attributes {heddle.symbols = {s = [1, 99]}} {
  %zero = constant() {value = dense<0> : tensor<i64>} : () -> i64[]
  %one = constant() {value = dense<1> : tensor<i64>} : () -> i64[]
  %size = constant() {value = dense<512> : tensor<i64>} : () -> i64[]
  %none = constant() {value = dense<0.0> : tensor<1xf32>} : () -> f32[1]
  %all = constant() {value = dense<1.0> : tensor<1xf32>} : () -> f32[1]
  %lowest = constant() {value = dense<0xFF800000> : tensor<f32>} : () -> f32[]
  %places = iota(%zero, %one) {first = "0", size = "s"} : (i64[], i64[]) -> i64[s]
  %column = reshape(%places) {shape = ["s", "1"]} : (i64[s]) -> i64[s, 1]
  %seen = less_equal(%places, %column) : (i64[s], i64[s, 1]) -> i1[s, s]
  %ones = broadcast_to(%all) {shape = ["s", "s"]} : (f32[1]) -> f32[s, s]
  %triangle = where(%seen, %ones, %none) : (i1[s, s], f32[s, s], f32[1]) -> f32[s, s]
  %hidden = equal(%triangle, %none) : (f32[s, s], f32[1]) -> i1[s, s]
  %mask = where(%hidden, %lowest, %none) : (i1[s, s], f32[], f32[1]) -> f32[s, s]
  %behind = less(%column, %zero) : (i64[s, 1], i64[]) -> i1[s, 1]
  %more = add(%column, %size) : (i64[s, 1], i64[]) -> i64[s, 1]
  %front = where(%behind, %more, %column) : (i1[s, 1], i64[s, 1], i64[s, 1]) -> i64[s, 1]
  %flat = reshape(%front) {shape = ["s"]} : (i64[s, 1]) -> i64[s]
  %rows = gather(%table, %flat) {axis = 0} : (f32[512, 8], i64[s]) -> f32[s, 8]
  %half = cast(%triangle) {dtype = bf16} : (f32[s, s]) -> bf16[s, s]
  return %mask, %rows, %half : f32[s, s], f32[s, 8], bf16[s, s]
}

// gives
module {
  func.func @main(%arg0: f32[512, 8], %arg1: f32[s]) -> (f32[s, s], f32[s, 8], bf16[s, s]) attributes {heddle.symbols = {s = [1, 99]}} {
    %0 = constant() {value = dense<0> : tensor<i64>} : () -> i64[]
    %1 = constant() {value = dense<1> : tensor<i64>} : () -> i64[]
    %2 = constant() {value = dense<0.000000e+00> : tensor<1xf32>} : () -> f32[1]
    %3 = constant() {value = dense<0xFF800000> : tensor<f32>} : () -> f32[]
    %4 = iota(%0, %1) {first = "0", size = "s"} : (i64[], i64[]) -> i64[s]
    %5 = reshape(%4) {shape = ["s", "1"]} : (i64[s]) -> i64[s, 1]
    %6 = less_equal(%4, %5) : (i64[s], i64[s, 1]) -> i1[s, s]
    %7 = where(%6, %2, %3) : (i1[s, s], f32[1], f32[]) -> f32[s, s]
    %8 = gather(%arg0, %4) {axis = 0 : i64} : (f32[512, 8], i64[s]) -> f32[s, 8]
    %9 = constant() {value = dense<1.000000e+00> : tensor<bf16>} : () -> bf16[]
    %10 = constant() {value = dense<0.000000e+00> : tensor<bf16>} : () -> bf16[]
    %11 = where(%6, %9, %10) : (i1[s, s], bf16[], bf16[]) -> bf16[s, s]
    return %7, %8, %11 : f32[s, s], f32[s, 8], bf16[s, s]
  }
}
