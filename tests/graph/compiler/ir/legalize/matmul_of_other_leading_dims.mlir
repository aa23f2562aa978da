// run cuda: legalize
// b has a's leading dims or none.
func.func @main(%a: f32[n, 3, 4], %b: f32[5, 1, 4, 6], %c: f32[1, 4, 7]) -> (f32[5, n, 3, 6], f32[n, 3, 7]) attributes {heddle.symbols = {n = [1, 9]}} {
  %d = matmul(%a, %b) {precision = "full"} : (f32[n, 3, 4], f32[5, 1, 4, 6]) -> f32[5, n, 3, 6]
  %e = matmul(%a, %c) {precision = "full"} : (f32[n, 3, 4], f32[1, 4, 7]) -> f32[n, 3, 7]
  return %d, %e : f32[5, n, 3, 6], f32[n, 3, 7]
}

// gives
module {
  func.func @main(%arg0: f32[n, 3, 4], %arg1: f32[5, 1, 4, 6], %arg2: f32[1, 4, 7]) -> (f32[5, n, 3, 6], f32[n, 3, 7]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = broadcast_to(%arg0) {shape = ["5", "n", "3", "4"]} : (f32[n, 3, 4]) -> f32[5, n, 3, 4]
    %1 = broadcast_to(%arg1) {shape = ["5", "n", "4", "6"]} : (f32[5, 1, 4, 6]) -> f32[5, n, 4, 6]
    %2 = matmul(%0, %1) {precision = "full"} : (f32[5, n, 3, 4], f32[5, n, 4, 6]) -> f32[5, n, 3, 6]
    %3 = reshape(%arg2) {shape = ["4", "7"]} : (f32[1, 4, 7]) -> f32[4, 7]
    %4 = matmul(%arg0, %3) {precision = "full"} : (f32[n, 3, 4], f32[4, 7]) -> f32[n, 3, 7]
    return %2, %4 : f32[5, n, 3, 6], f32[n, 3, 7]
  }
}
